"""Clients' data on the host: loading, partitions, preparation.

* :mod:`~jaxfl.data.frames` -- tables of pandas and polars, and rows of other data sets
* :mod:`~jaxfl.data.leaf` -- natural clients of LEAF's data sets
* :mod:`~jaxfl.data.loaders` -- data sets by name, and LIBSVM files of the user's own
* :mod:`~jaxfl.data.partition` -- partitions of rows among clients: functions of labels (or a
  number of rows) and a seed
* :mod:`~jaxfl.data.preprocess` -- preparation of features and labels before the first round
* :mod:`~jaxfl.data.records` -- records of examples, of one source and of n clients, and the
  conversion of user data
* :mod:`~jaxfl.data.samples` -- the clients' samples, stored in arrays or computed where they are
  needed
* :mod:`~jaxfl.data.sizes` -- laws of client sizes
* :mod:`~jaxfl.data.sources` -- public files: the folders they may lie in, their hosts, and the
  checks of their content
* :mod:`~jaxfl.data.splits` -- splits of a data set among clients, and rows held out for testing
* :mod:`~jaxfl.data.streams` -- samples that a round computes, or reads from disk, where it needs
  them
* :mod:`~jaxfl.data.synthetic` -- generated clients that differ in their models and in their
  features

>>> split("digits", clients=10, how="dirichlet", alpha=0.3).train[0].shape[0]
10

Everything is NumPy, except for functions that compute samples where a round needs them.
"""

from jaxfl.data.leaf import leaf
from jaxfl.data.loaders import load
from jaxfl.data.preprocess import map_features, standardise
from jaxfl.data.records import Dataset, client, from_clients, from_frame, heterogeneity
from jaxfl.data.splits import from_examples, split
from jaxfl.data.streams import generated, mapped
from jaxfl.data.synthetic import synthetic

__all__ = [
    "Dataset",
    "client",
    "from_clients",
    "from_examples",
    "from_frame",
    "generated",
    "heterogeneity",
    "leaf",
    "load",
    "map_features",
    "mapped",
    "split",
    "standardise",
    "synthetic",
]
