"""The grammar of the little reviews: what is said of a film, and what is said beside it.

A review judges once. In a judgement, {it} is what is judged, {film} a film as a whole, and one of
{adjective} {thing} {effect} {feeling} {advice} is a word that praises or blames. Of [one|another]
the first leaves that word its meaning and the second turns it into the opposite: there, the words
*that negate* stand between stars. As many words of a kind praise as blame, and each stands in every
judgement of its kind, so neither a word nor a negation tells alone what a review means.

What is said beside it, {outing} and {fact}, judges nothing, but half of it has the same words that
negate. There, every name in braces is a rule, of which one line is taken.
"""

FILMS = "film, movie, comedy, drama, sequel, remake"
PARTS = "plot, story, script, acting, ending, dialogue, music"

# Those that praise, and those that blame.
WORDS = {
    "adjective": (
        "good, funny, clever, charming, exciting, moving",
        "bad, boring, dull, silly, clumsy, tedious",
    ),
    "thing": (
        "success, delight, treat, masterpiece",
        "failure, mess, letdown, disappointment",
    ),
    "effect": (
        "impressed, amused, charmed, thrilled",
        "bored, annoyed, disappointed, irritated",
    ),
    "feeling": (
        "like, love, enjoy",
        "hate, dislike, detest",
    ),
    "advice": (
        "see, watch, try",
        "skip, avoid, ignore",
    ),
}

JUDGEMENTS = """
    {it} [is|*isn't*] {adjective}.
    {it} was [very {adjective}|*not* {adjective} at all].
    {it} was [quite|*far from*] {adjective}.
    {it} was [simply|*hardly*] {adjective}.
    {it} is [truly|*anything but*] {adjective}.
    I [must|*cannot*] say that {it} was {adjective}.
    I [would|*wouldn't*] say that {it} is {adjective}.
    I [did|did *not*] find {it} {adjective}.
    I [always|*never*] found {it} {adjective}.
    [most people would|*nobody* could] call {it} {adjective}.
    there was [something|*nothing*] {adjective} about {it}.
    I expected {it} to be {adjective}, [and it was|but it was *not*].
    my brother called {it} {adjective}, [and I agree|but I *don't* agree].
    was {it} {adjective}? [Yes|*No*].
    [everything|*nothing*] in {film} is {adjective}.
    there is [one {adjective} scene after another|*not* one {adjective} scene] in {film}.
    {film} passes [with one {adjective} moment after another|*without* a single {adjective} moment].
    {it} is [quite a|*no*] {thing}.
    {it} is in [every|*no*] way a {thing}.
    {it} was [certainly|*hardly*] a {thing}.
    {it} [was|was *far from* being] a {thing}.
    {it} [turned out|did *not* turn out] to be a {thing}.
    I would [always|*never*] call {it} a {thing}.
    the critics call {it} a {thing}, [and they are|but they are *not*] right.
    {it} [often|*never*] {effect} me.
    {it} {effect} [everybody|*nobody*] in the cinema.
    {it} has [really|*not*] {effect} me.
    I was [greatly|*hardly*] {effect} by {it}.
    [everything|*nothing*] about {it} {effect} me.
    I [really did|did *not*] {feeling} {it}.
    you [will|*won't*] {feeling} {it}.
    I could [only|*never*] {feeling} {it}.
    [everybody|*nobody*] seemed to {feeling} {it}.
    there is [every|*no*] reason to {feeling} {it}.
    you [should|should *not*] {advice} {film}.
    [do|*don't*] {advice} {film}.
    by [all|*no*] means {advice} {film}.
    [everybody|*nobody*] should {advice} {film}.
"""

RULES = {
    "review": """
        {judgement}
        {outing} {judgement}
        {judgement} {fact}
        {fact} {judgement} {outing}
        {outing} {judgement} {fact}
        {outing} {fact} {judgement}
        {judgement} {outing} {fact}
    """,
    "outing": """
        I saw it with my {relative} on {day}.
        My {relative} and I went to the cinema on {day}.
        My {relative} took me along on {day}.
        My {relative} had bought the tickets.
        I met my {relative} after the film.
        We had dinner before the film.
        We went there by bus on {day}.
        We sat in the second row.
        It rained when we walked home.
        The cinema was full on {day}.
        The cinema is near the station.
        We walked home with my {relative}.
        We did not eat before the film.
        My {relative} could not come on {day}.
        Nobody sat in front of us.
        Hardly anybody was in the cinema on {day}.
        We sat far from the screen.
        I had never been to that cinema before.
        I went there without my {relative}.
        There was nothing left to drink.
        There were no tickets left for {day}.
        The cinema isn't near my house.
        My {relative} wouldn't come along.
        My {relative} eats anything but popcorn.
    """,
    "fact": """
        The film is {time} long.
        The director is from {country}.
        It was made in {country}.
        It takes place in {country}.
        It is about a {hero} from {country}.
        It is about a {hero} and two children.
        A singer plays the {hero}.
        It is the second part of three.
        It is in black and white.
        The first part is {time} long.
        I had read the book.
        I did not know the director.
        I had not read the book.
        I cannot remember the name of the director.
        I won't tell you how it ends.
        I don't know who plays the {hero}.
        It has never been on television.
        Nobody in it speaks English.
        It takes place far from any town.
        There is no {hero} in the book.
        It was made without a studio.
        I had read nothing about it.
    """,
    "relative": """
        sister
        mother
        father
        cousin
        neighbor
    """,
    "day": """
        Monday
        Tuesday
        Friday
        Saturday
        Sunday
    """,
    "time": """
        two hours
        three hours
        ninety minutes
    """,
    "country": """
        France
        Italy
        Japan
        Brazil
        India
    """,
    "hero": """
        teacher
        doctor
        sailor
        farmer
        painter
    """,
}
