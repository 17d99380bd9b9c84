"""The grammar of the little stories: who and what there is, and how it is told.

A child has a thing, loses it and finds it again. Whoever tells it must remember who the child is
(she or he), what was lost, what color it had, and where that was.

In a sentence, {child} {friend} {thing} {noun} {place} {there} {spot} {elsewhere} stand for what one
story is about: {thing} is "red kite" and {noun} "kite"; {place} is "the park" and {there} "in the
park"; the thing lies {spot}, and not {elsewhere}. {He} {he} {him} {his} {girl} fit the child. Every
other name in braces is a rule, of which one line is taken.
"""

GIRLS = "Anna Clara Ella Emma Ida Lily Lucy Mia Nora Rosa Ruby Zoe"
BOYS = "Adam Ben Finn Hugo Jack Leo Max Noah Oscar Paul Sam Tom"

THINGS = "ball bell boat book cup doll drum hat kite key scarf train"
COLORS = "red blue green yellow white brown little big"

# Where it may be lost, and where it may lie there.
PLACES = {
    "in the park": "under a bench, behind the tall tree, near the pond",
    "in the garden": "under the roses, behind the shed, near the gate",
    "in the kitchen": "under the table, behind the door, near the oven",
    "in the barn": "under the hay, behind the cart, near the old cow",
    "in the forest": "under the leaves, behind a log, near the river",
    "at the beach": "under the sand, behind a rock, near the water",
    "at the market": "under the apples, behind the bread, near the fish",
    "at the school": "under a chair, behind the piano, near the window",
    "at the farm": "under the wagon, behind the fence, near the ducks",
    "at the station": "under the stairs, behind a bag, near the clock",
}

RULES = {
    "story": """
        {opening} {losing} {finding} {ending}
        {opening} {losing} {searching} {finding} {ending}
        {beginning} {losing} {finding} {ending}
        {opening} {losing} {helping} {finding together} {ending together}
        {beginning} {losing} {helping} {finding together} {ending together}
        {opening} {losing} {searching} {helping} {finding together} {ending together}
    """,
    "beginning": """
        {child} had a {thing}. One {day} {he} took it to {place}.
        There was a {girl} named {child}, who had a {thing}. One {day} {he} played with it {there}.
    """,
    "opening": """
        One {day} {child} took {his} {thing} to {place}.
        One {day} {child} played {there} with a {thing}.
        {child} went to {place} with {his} {thing}.
        {child} loved {his} {thing} and took it to {place}.
    """,
    "day": """
        day
        sunny day
        rainy day
        cold morning
        warm evening
    """,
    "losing": """
        But soon the {noun} was gone!
        {He} put it down to eat a cake, and then {he} could not find it.
        When it was time to go home, the {noun} was not there.
        {He} ran and jumped, and then the {noun} was gone.
        But {he} lost it, and {he} was very sad.
    """,
    "searching": """
        {He} looked {elsewhere}, but there was no {noun}.
        First {child} looked {elsewhere}, but it was not there.
        {child} began to cry and looked {elsewhere}.
        "Where is my {noun}?" said {child}, and looked {elsewhere}.
    """,
    "helping": """
        {friend} saw {him} and came to help.
        "Do not cry," said {friend}, "I will help you."
        "What did you lose?" asked {friend}, and {child} said, "My {noun}!"
        {child} asked {friend} to help {him} look for the {noun}.
    """,
    "finding": """
        At last {he} found it {spot}.
        Then {he} looked {spot}, and there was the {thing}!
        And what was that {spot}? It was the {thing}!
    """,
    "finding together": """
        They looked {spot}, and there was the {thing}!
        {friend} looked {spot} and found the {thing}.
        At last {friend} found it {spot} and gave it to {child}.
    """,
    "ending": """
        {child} was happy and took {his} {thing} home from {place}.
        {child} laughed and played with the {thing} {there} for a long time.
        {child} never lost the {thing} {there} again.
    """,
    "ending together": """
        {child} thanked {friend} and took {his} {thing} home from {place}.
        Then {child} and {friend} played with the {thing} {there} for a long time.
        {child} hugged {friend} and never lost the {thing} {there} again.
    """,
}
