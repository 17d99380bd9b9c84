from .explain_trace import explain as explain
from .explanation import Explanation as Explanation
from .explanation import Step as Step

__all__: list[str]
