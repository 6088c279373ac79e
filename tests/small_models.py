"""Small models that are quick to learn, for what is done with models."""

import jax
import jax.numpy as jnp
import numpy as np

import budgetjax as bj
from budgetjax.tables.scaling import Scaling

D, B = 2, 5
X = np.random.default_rng(0).normal(size=(30, D)).astype(np.float32)
CLASSES = np.argmax(X @ np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]), axis=1)
y = np.where(X[:, 0] > 0, 1, -1)
KERNEL = bj.RBF(0.5)
PARTS = {"num_features": D, "budget": B, "maintenance": bj.RemoveSmallest()}


def learned(num_classes=2):
    """A perceptron, whose program is the quickest to compile."""
    state = bj.Perceptron().init(KERNEL, num_classes=num_classes, **PARTS)
    labels = CLASSES if num_classes == 3 else y
    return bj.run(state, X, labels)[0]


def regressor():
    state = bj.SGD(loss=bj.losses.absolute, learning_rate=0.1).init(
        KERNEL, num_features=D, num_classes=None, budget=B
    )
    return bj.step(state, X[0], 2.5)


def streamed():
    """A model of raw rows far from 0 with words as labels, and its data."""
    words = np.array(["no", "yes"])[(y + 1) // 2]
    raw = X * [3.0, 0.1] + [100.0, -5.0]
    labels = bj.TableModel(
        bj.Perceptron().init(KERNEL, **PARTS),
        Scaling.empty(2).updated(raw),
        classes=np.array(["no", "yes"]),
    )
    model = bj.fit_stream(bj.StreamModel(labels), [(raw, words)], batch_rows=30)
    return model, raw, words


class Network(bj.Model):
    """A layer of hidden units, and one of scores."""

    hidden: jax.Array
    shift: jax.Array
    outer: jax.Array
    link: str = bj.static(default=bj.losses.SOFTMAX)

    @property
    def num_features(self):
        return self.hidden.shape[0]

    @property
    def num_columns(self):
        return self.outer.shape[1]

    @property
    def dtype(self):
        return self.outer.dtype

    def scores(self, X):
        inside = jnp.matmul(X, self.hidden, precision="highest") + self.shift[None]
        return jnp.matmul(jnp.tanh(inside), self.outer, precision="highest")


def network(columns=3, features=D, **more):
    random = np.random.default_rng(0)
    sizes = (features, 8), (8,), (8, columns)
    return Network(*(jnp.asarray(random.normal(size=n), "f4") for n in sizes), **more)
