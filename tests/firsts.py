"""Which of many cases show something for the first time. Without `budgetjax`."""


def firsts(cases, *kinds):
    """The cases with an algorithm, a strategy, ... that none before them has.

    Args:
      cases: in their order, the plainest first.
      *kinds: names of attributes, or functions of a case; None is no kind.
    """
    seen = set()
    for case in cases:
        shown = {
            (kind, kind(case) if callable(kind) else getattr(case, kind))
            for kind in kinds
        }
        news = {of for of in shown if of[1] is not None} - seen
        seen |= news
        if news:
            yield case
