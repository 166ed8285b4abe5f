"""What a public project needs: metadata, workflows whose scripts exist, links, versions that agree."""

import importlib
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from scripts import ROOT, load

import jaxfl

pytestmark = pytest.mark.once

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
NEEDED = {"tests", "docs", "wheels", "publish", "slow", "accelerators", "vulnerabilities"}


def jobs() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs pyyaml: pip install '.[test]'")
    return {
        name: job
        for file in WORKFLOWS
        for name, job in yaml.safe_load(file.read_text("utf-8"))["jobs"].items()
    }


def test_every_command_of_a_workflow_is_a_script_of_the_repository() -> None:
    """So that all of them can be run here; the jobs that the project promises are there."""
    found = jobs()
    assert found.keys() >= NEEDED
    for name, job in found.items():
        assert job.get("permissions", {}).keys() <= {"id-token"}, name
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:  # tags can be moved
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
                continue
            shell, script, *arguments = step["run"].split()
            assert (shell, Path(script).parent.name) == ("bash", ".ci")
            assert subprocess.run(["bash", "-n", ROOT / script], check=False).returncode == 0
            if arguments and not arguments[0].startswith(("$", '"$')):
                assert f"\n  {arguments[0]})" in (ROOT / script).read_text("utf-8")


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    tool = load(".ci/links")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<p id="here"><a href="#here"><a href="../b.html#no">')
    (tmp_path / "b.html").write_text('<a href="a/#here"><a href="c.html"><a href="https://x.org">')
    assert tool.broken(tmp_path) == ["a/index.html: ../b.html#no", "b.html: c.html"]


def test_all_say_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == jaxfl.__version__
    cited = ROOT / "CITATION.cff"
    assert f"version: {jaxfl.__version__}\n" in cited.read_text("utf-8")
    assert f"## [{jaxfl.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_contributing_is_short_and_its_links_lead_somewhere() -> None:
    """To files, and to headings of docs/developing.md as the site and the host of the code name them."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert len(page.split()) <= 400
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs/developing.md").read_text("utf-8"), re.M)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    for file, anchor in re.findall(r"\]\(([^)#:]+)#?([^)]*)\)", page):
        assert (ROOT / file).exists(), file
        assert not anchor or anchor in anchors, anchor


def test_the_conda_recipe_asks_for_what_the_package_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    recipe = (ROOT / ".ci/conda/recipe.yaml").read_text("utf-8")
    recipe = recipe.replace("${{ python_min }}", "3.11")
    run = re.search(r"\n  run:\n(.*?)\n\n", recipe, re.DOTALL)
    assert run is not None
    asked = {line.strip("- ").replace("-base", "").replace(" ", "") for line in run[1].split("\n")}
    assert asked == {*project["project"]["dependencies"], "python>=3.11"}
    built = {line.replace(" ", "") for line in re.findall(r"- (hatch.*)", recipe)}
    assert built == {*project["build-system"]["requires"]}
    assert f'version: "{jaxfl.__version__}"' in recipe


MODULES = ("data", "models", "parts", "privacy", "testing", "theory", "views")
MOST = 120  # names to learn, the constructors in the modules of jaxfl.parts left out


def examples() -> str:
    """The Python of the pages and of the notebooks."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = [block for page in pages for block in PYTHON.findall(page.read_text("utf-8"))]
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        blocks += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n".join(blocks)


def test_public_names_are_few_and_each_has_an_example() -> None:
    code = examples()
    names = [
        (jaxfl, "jaxfl", name) for name in jaxfl.__all__ if name not in ("__version__", *MODULES)
    ]
    for module in MODULES:
        names += [(getattr(jaxfl, module), module, name) for name in getattr(jaxfl, module).__all__]
    assert len(names) <= MOST, len(names)

    def shown(of: Any, module: str, name: str) -> bool:
        doc = "\n".join(re.findall(r"^ *>>> .*", getattr(of, name).__doc__ or "", re.MULTILINE))
        imported = rf"from jaxfl(\.{module})? import (\([^)]*|[^\n]*)\b{name}\b"
        used = rf"\b{module}\.{name}\b|{imported}"
        return bool(re.search(used, code) or re.search(rf"\b{name}\(", doc))

    assert [f"{module}.{name}" for of, module, name in names if not shown(of, module, name)] == []


def test_the_stub_of_parts_is_what_is_there() -> None:
    stub = (ROOT / "jaxfl/parts/__init__.pyi").read_text("utf-8")
    lines = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    found = {name: getattr(importlib.import_module(module), name) for module, name in lines}
    assert found == {name: getattr(jaxfl.parts, name) for name in jaxfl.parts.__all__}
