"""Grammars of generated texts: how rules expand, and the words and frames of sentence pairs."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

_Choice = TypeVar("_Choice")

SLOT = re.compile(r"\{([^}]+)\}")
"""A slot of a line, such as {thing}: a fact, or another rule."""


def one_of(choices: Sequence[_Choice], random: Random) -> _Choice:
    """Choose uniformly at random.

    >>> one_of("abc", Random(0))
    'c'
    """
    # Only random() is guaranteed to stay the same across Python versions.
    return choices[int(random.random() * len(choices))]


def lines_of_rule(lines: str) -> list[str]:
    """Split the lines of a rule, without indentation."""
    return [line.strip() for line in lines.strip().splitlines()]


def expand(
    rule: str, lines: Mapping[str, Sequence[str]], facts: Mapping[str, str], random: Random
) -> str:
    """Choose a line of a rule at random, and fill its slots by facts or other rules.

    Args:
        rule: The rule to expand.
        lines: Alternative lines of each rule.
        facts: Values of the slots that are no rules.
        random: Chooses the lines.

    >>> expand("story", {"story": ["{name} {verb}."], "verb": ["ran"]}, {"name": "Lily"}, Random(0))
    'Lily ran.'
    """

    def filled(slot: re.Match[str]) -> str:
        name = slot[1]
        return facts[name] if name in facts else expand(name, lines, facts, random)

    return SLOT.sub(filled, one_of(lines[rule], random))


# Personal pronouns as subject and indirect object, in German and in English, with the person.
PERSONS = """
    ich | mir   | I    | me   | 1
    du  | dir   | you  | you  | 2
    er  | ihm   | he   | him  | 3
    sie | ihr   | she  | her  | 3
    wir | uns   | we   | us   | 1
    ihr | euch  | you  | you  | 2
    sie | ihnen | they | them | 3
"""

# Accusative determiners of masculine, feminine and neuter nouns, and in English.
DETERMINERS = """
    den    | die    | das    | the
    diesen | diese  | dieses | this
    meinen | meine  | mein   | my
    deinen | deine  | dein   | your
"""

# Nouns with the verbs that may take them as object.
NOUNS = """
    der Satz       | sentence  | lesen schreiben übersetzen verstehen erklären vor-lesen
    der Text       | text      | lesen schreiben übersetzen verstehen erklären vor-lesen
    das Wort       | word      | lesen schreiben übersetzen verstehen erklären
    das Buch       | book      | lesen schreiben übersetzen kaufen verkaufen suchen finden zu-machen
    der Brief      | letter    | lesen schreiben übersetzen suchen finden auf-machen vor-lesen
    die Geschichte | story     | lesen schreiben übersetzen verstehen erklären vor-lesen
    die Zeitung    | newspaper | lesen kaufen suchen finden mit-bringen weg-werfen
    die Tür        | door      | auf-machen zu-machen putzen reparieren
    das Fenster    | window    | auf-machen zu-machen putzen reparieren
    der Koffer     | suitcase  | auf-machen zu-machen suchen finden ab-holen mit-bringen
    das Licht      | light     | an-machen aus-machen reparieren
    das Radio      | radio     | an-machen aus-machen reparieren kaufen verkaufen
    die Lampe      | lamp      | an-machen aus-machen putzen kaufen weg-werfen
    das Zimmer     | room      | auf-räumen putzen suchen finden
    die Küche      | kitchen   | auf-räumen putzen suchen kaufen
    das Haus       | house     | auf-räumen putzen kaufen verkaufen suchen finden
    das Auto       | car       | putzen reparieren kaufen verkaufen ab-holen
    der Schlüssel  | key       | suchen finden ab-holen mit-bringen weg-werfen
    der Apfel      | apple     | essen kaufen suchen mit-bringen weg-werfen
    das Brot       | bread     | essen kaufen verkaufen mit-bringen
    der Kuchen     | cake      | essen kaufen verkaufen ab-holen mit-bringen
"""

# The infinitive, its prefix set apart where it separates; the present with ich, du, er and ihr
# (with wir and sie it is the infinitive); the participle. In English: the base, with a particle
# where it has one, the third person unless it only adds an s, and the participle.
VERBS = {
    "verb": """
        lesen       | lese liest liest lest                    | gelesen     | read read
        schreiben   | schreibe schreibst schreibt schreibt     | geschrieben | write written
        übersetzen  | übersetze übersetzt übersetzt übersetzt  | übersetzt   | translate translated
        verstehen   | verstehe verstehst versteht versteht     | verstanden  | understand understood
        erklären    | erkläre erklärst erklärt erklärt         | erklärt     | explain explained
        kaufen      | kaufe kaufst kauft kauft                 | gekauft     | buy bought
        verkaufen   | verkaufe verkaufst verkauft verkauft     | verkauft    | sell sold
        suchen      | suche suchst sucht sucht                 | gesucht     | look-for looked
        finden      | finde findest findet findet              | gefunden    | find found
        essen       | esse isst isst esst                      | gegessen    | eat eaten
        putzen      | putze putzt putzt putzt                  | geputzt     | clean cleaned
        reparieren  | repariere reparierst repariert repariert | repariert   | repair repaired
        auf-machen  | mache machst macht macht                 | aufgemacht  | open opened
        zu-machen   | mache machst macht macht                 | zugemacht   | close closed
        an-machen   | mache machst macht macht                 | angemacht   | turn-on turned
        aus-machen  | mache machst macht macht                 | ausgemacht  | turn-off turned
        auf-räumen  | räume räumst räumt räumt                 | aufgeräumt  | tidy-up tidies tidied
        vor-lesen   | lese liest liest lest                    | vorgelesen  | read-out read
        mit-bringen | bringe bringst bringt bringt             | mitgebracht | bring brought
        weg-werfen  | werfe wirfst wirft werft                 | weggeworfen | throw-away thrown
        ab-holen    | hole holst holt holt                     | abgeholt    | pick-up picked
    """,
    "know": """
        wissen      | weiß weißt weiß wisst                    | gewusst     | know known
        glauben     | glaube glaubst glaubt glaubt             | geglaubt    | believe believed
        sagen       | sage sagst sagt sagt                     | gesagt      | say said
        sehen       | sehe siehst sieht seht                   | gesehen     | see seen
    """,
    "laugh": """
        lachen      | lache lachst lacht lacht                 | gelacht     | laugh laughed
        warten      | warte wartest wartet wartet              | gewartet    | wait waited
        weinen      | weine weinst weint weint                 | geweint     | cry cries cried
    """,
    "try": """
        versuchen   | versuche versuchst versucht versucht     | versucht    | try tries tried
        hoffen      | hoffe hoffst hofft hofft                 | gehofft     | hope hoped
        versprechen | verspreche versprichst verspricht versprecht | versprochen | promise promised
        vor-haben   | habe hast hat habt                       | vorgehabt   | plan planned
    """,
    "help": """
        helfen      | helfe hilfst hilft helft                 | geholfen    | help helped
    """,
    # These help other verbs alone.
    "can": """
        können      | kann kannst kann könnt                   | gekonnt     | can can could
        müssen      | muss musst muss müsst                    | gemusst     | must must had
        sollten     | sollte solltest sollte solltet           | gesollt     | should should should
    """,
    "have": """
        haben       | habe hast hat habt                       | gehabt      | have has had
    """,
    "do": """
        tun         | tue tust tut tut                         | getan       | do does done
    """,
}

# These two are the same in both languages, word for word.
TIMES = """
    heute      | today
    morgen     | tomorrow
    jetzt      | now
    am Montag  | on Monday
    am Sonntag | on Sunday
"""
ADVERBS = """
    endlich | finally
    gerade  | just
    nie     | never
    schon   | already
"""

# {verb} agrees with {subject}, and {verb last}, at the end of a clause, with {other}.
FRAMES = {
    "statement": """
        {subject} {verb} {object} {verb prefix}.
        {subject} {verb} {object}.

        {subject} {verb} {time} {object} {verb prefix}.
        {subject} {verb} {object} {time}.
    """,
    "time first": """
        {time} {verb} {subject} {object} {verb prefix}.
        {time} {subject} {verb} {object}.
    """,
    "can": """
        {subject} {can} {object} {verb infinitive}.
        {subject} {can} {verb infinitive} {object}.

        {subject} {can} {time} {object} {verb infinitive}.
        {subject} {can} {verb infinitive} {object} {time}.
    """,
    "question": """
        {verb} {subject} {object} {verb prefix}?
        {do} {subject} {verb infinitive} {object}?
    """,
    "can question": """
        {can} {subject} {object} {verb infinitive}?
        {can} {subject} {verb infinitive} {object}?

        {can} {subject} {time} {object} {verb infinitive}?
        {can} {subject} {verb infinitive} {object} {time}?
    """,
    "perfect": """
        {subject} {have} {object} {verb participle}.
        {subject} {have} {verb participle} {object}.

        {subject} {have} {object} {adverb} {verb participle}.
        {subject} {have} {adverb} {verb participle} {object}.
    """,
    "perfect question": """
        {have} {subject} {object} {verb participle}?
        {have} {subject} {verb participle} {object}?

        {have} {subject} {object} {adverb} {verb participle}?
        {have} {subject} {adverb} {verb participle} {object}?
    """,
    "that": """
        {subject} {know}, dass {other} {object} {verb last}.
        {subject} {know} that {other} {verb last} {object}.

        {subject} {know}, dass {other} {time} {object} {verb last}.
        {subject} {know} that {other} {verb last} {object} {time}.

        {subject} {know}, dass {other} {object} {verb participle} {have last}.
        {subject} {know} that {other} {have last} {verb participle} {object}.
    """,
    "because": """
        {subject} {laugh}, weil {other} {object} {verb last}.
        {subject} {laugh} because {other} {verb last} {object}.

        {subject} {laugh}, weil {other} {object} {verb infinitive} {can last}.
        {subject} {laugh} because {other} {can last} {verb infinitive} {object}.
    """,
    "try": """
        {subject} {try} {try prefix}, {object} {verb zu}.
        {subject} {try} {verb zu} {object}.
    """,
    "help": """
        {subject} {help} {whom}, {object} {verb zu}.
        {subject} {help} {whom} {verb zu} {object}.
    """,
    "help question": """
        {can} {subject} {whom} {help infinitive}, {object} {verb zu}?
        {can} {subject} {help infinitive} {whom} {verb zu} {object}?
    """,
}

# What frames have outside of slots, and says the same.
SAME = {"that": "dass", "because": "weil"}
