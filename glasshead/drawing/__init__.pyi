from .block import ENGLISH as ENGLISH
from .block import Block as Block
from .block import Canvas as Canvas
from .block import Words as Words
from .cards import Card as Card
from .cards import Cards as Cards
from .circuit import Circuit as Circuit
from .circuit import CircuitEdge as CircuitEdge
from .circuit import CircuitNode as CircuitNode
from .document import Document as Document
from .document import Drawn as Drawn
from .document import Formula as Formula
from .document import Heading as Heading
from .document import Note as Note
from .document import Paragraph as Paragraph
from .heat_map import HeatMap as HeatMap
from .heat_map import sampled_map as sampled_map
from .numbers import number as number
from .numbers import vector as vector
from .overlay import Overlay as Overlay
from .printable import printable as printable
from .printable import shorten as shorten
from .printable import visible as visible
from .table import Table as Table
from .walk import Walk as Walk
from .word_bands import WordBands as WordBands

__all__: list[str]
