"""The kernel Perceptron and its budgeted relatives, binary and multi-class.

Which one it is depends on the maintenance:
`refuse` - the Perceptron; `remove_oldest` - the remove-oldest Perceptron (Dekel,
Shalev-Shwartz, Singer, NIPS 2005, section 3); `remove_random` - the Randomized
Budget Perceptron (Cesa-Bianchi, Gentile 2006); `remove_largest_margin` - CKS
(Crammer, Kandola, Singer 2003).
"""

from .importance import repeats
from .passes import Pass
from .support import candidate_row


def run(kernel, X, y, *, margin=0.0, **given):
    """One pass; an update when the margin of the round is at most `margin`."""
    learner = Pass(kernel, X, y, **given)
    for x, label, weight, f in learner.rounds():
        round_margin, rival = learner.margin_and_rival(f, label)
        if round_margin <= margin:
            learner.updates.append(learner.t)
            direction = candidate_row(label, rival, learner.C)
            gain = (direction**2).sum() * kernel(x, x)
            steps = repeats(weight, margin - round_margin, gain)
            learner.insert(x, steps * direction)
    return learner.record()
