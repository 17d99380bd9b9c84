"""A cookbook that is asked in plain words: attention as a soft dictionary.

The titles are the keys, the recipes the values. The question is matched with every title, and β
says how decided the cookbook is: it mumbles at 0.5, and at ∞ it names one recipe.
"""

import math

import torch

from glasshead.ladder import KeyValueStore

COOKBOOK = {
    "lasagna with spinach": "Layer pasta, spinach and ricotta; bake for 40 minutes.",
    "lasagna bolognese": "Layer pasta, ragù and béchamel; bake for 45 minutes.",
    "spinach soup": "Simmer spinach in stock; blend; add cream.",
    "apple pie": "Fill a crust with apples and cinnamon; bake for 50 minutes.",
}
WORDS = sorted({word for title in COOKBOOK for word in title.split()})
QUESTION = "how do i make lasagna with some spinach"


def bag_of_words(text: str) -> torch.Tensor:
    """Count the cookbook's words in a text, as a vector of length 1 where there are any.

    Dividing by the length keeps a long title from winning by its length.

    >>> bag_of_words("pie").tolist() == [float(word == "pie") for word in WORDS]
    True
    """
    words = text.lower().split()
    counts = torch.tensor([float(words.count(word)) for word in WORDS])
    return torch.nn.functional.normalize(counts, dim=0)


def main() -> None:
    """Ask one question at three inverse temperatures."""
    cookbook = KeyValueStore(list(COOKBOOK), list(COOKBOOK.items()), embed=bag_of_words)
    lines = [f"{QUESTION}?\n"]
    for beta in (0.5, 5.0, math.inf):
        lines.append(f"\nβ = {beta}\n")
        for answer in cookbook.ask(QUESTION, beta=beta, top=3):
            title, recipe = answer.value
            lines.append(f"  {answer.weight:6.1%}  {title}: {recipe}\n")
    print("".join(lines), end="")


if __name__ == "__main__":
    main()
