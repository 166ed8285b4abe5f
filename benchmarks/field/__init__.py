"""The field: all private algorithms at equal proven eps, with rounds as an axis.

* :mod:`~field.contenders` -- the algorithms, and the six settings of each that are tried with every
  step size
* :mod:`~field.page` -- the page of the benchmark and its pictures, generated from the data set
* :mod:`~field.results` -- the data set of the benchmark: ranks, leaders, and verdicts on claims
* :mod:`~field.settings` -- data, model, and grid of each setting
* :mod:`~field.tuning` -- the choice on validation data, and the winners with five other seeds
"""
