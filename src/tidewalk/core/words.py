"""Numbers in sentences: counted nouns, and money where half a cent counts."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 column`, `2,000 columns`; `plural` where the noun does not take an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def cost(value: float) -> str:
    """Money of one contract and side: to the cent, or to a tenth of one where that shows more: `5.60`, `5.595`.

    Half a tick often ends in half a cent, which two roundings of the same cost would turn into two costs.
    """
    return f"{value:,.3f}".removesuffix("0")


def are(number: int) -> str:
    """The verb after a counted noun: `is` after one, else `are`."""
    return "is" if number == 1 else "are"
