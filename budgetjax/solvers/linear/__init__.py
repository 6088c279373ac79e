"""Linear classifiers on a training set, dense or sparse; one file per algorithm."""
