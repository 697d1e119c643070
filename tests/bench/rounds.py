"""Sides of a comparison on a machine whose speed drifts: they take turns, one of them comes a second time in each round as
the control, and a difference that the control shows as well is called none."""
import math
import statistics

CONTROL = "control"


def alternate(sides, rounds, control=None):
    """By side, what its function returned in each round; with `control`, the name of a side, that side once more as CONTROL.
    Every other round goes backwards, so that no side always follows the same one. A side that returned None is left out."""
    turns = dict(sides, **({CONTROL: sides[control]} if control else {}))
    seen = {name: [] for name in turns}
    for number in range(rounds):
        for name in reversed(turns) if number % 2 else turns:
            if None not in seen[name]:
                seen[name].append(turns[name]())
    return {name: values for name, values in seen.items() if None not in values}


def ratios(above, below):
    """Of each round."""
    return [a / b for a, b in zip(above, below)]


def spread(values, form="{:.2f}"):
    """The median, and the least and the most."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def noise(above, below):
    """How far from 1 the same side beside itself came, as a factor of at least 1."""
    return max(max(ratio, 1 / ratio) for ratio in ratios(above, below))


def is_difference(factors, noise_factor):
    """Whether the median of the rounds' ratios is further from 1 than the control came."""
    return abs(math.log(statistics.median(factors))) > math.log(noise_factor)


def beside(above, below, noise_factor):
    """The ratio in words; refuses to call it a difference where it is none."""
    factors = ratios(above, below)
    return spread(factors) + ("" if is_difference(factors, noise_factor) else
                              f": no difference, the same side beside itself came to {noise_factor:.2f}")


def compare(seen, side, base, at=None):
    """`beside` of what alternate() returned with base as the control: by the at-th of the values that each function returned,
    or by the one."""
    def values(name):
        return [value if at is None else value[at] for value in seen[name]]
    if side == base:
        return "1"
    return beside(values(side), values(base), noise(values(base), values(CONTROL)))
