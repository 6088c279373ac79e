"""Types of arrays that many signatures name."""

from jaxtyping import Array, Bool, Float, Integer, Shaped

Scalar = Float[Array, ""]
Flag = Bool[Array, ""]
# A slot, a round, an example of a block, or a number of them.
Index = Integer[Array, ""]
# Of an example: its scores; its label, or its target, of one number or several.
Score = Float[Array, " columns"]
Label = Shaped[Array, ""]
Target = Shaped[Array, "*outputs"]
# Of a block of examples.
Examples = Float[Array, "size features"]
Targets = Shaped[Array, "size ..."]
PerExample = Float[Array, " size"]
Scores = Float[Array, "size columns"]
# Of a support set: one number, or flag, per row, and one number per pair of rows.
PerRow = Float[Array, " rows"]
Mask = Bool[Array, " rows"]
PerPair = Float[Array, "rows rows"]
# Orthonormal features, by the rows of a support set, and weights of these features.
Basis = Float[Array, "rows features"]
Weights = Float[Array, "columns features"]
