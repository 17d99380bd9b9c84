from .explain_trace import explain as explain
from .explanation import Explanation as Explanation
from .explanation import Step as Step
from .ladder_steps import explain_step as explain_step

__all__: list[str]
