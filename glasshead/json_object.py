"""JSON objects: what files such as config.json hold, or one sentence of what is wrong with them."""

import json
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.guarded_file import JSON_BYTES, read_regular


def read_object(file: Path, otherwise: str) -> dict[str, Any]:
    """The JSON object that a file holds.

    Args:
        file: Which one.
        otherwise: What else to do than to mend it, for the sentence.

    Errors: a ValueError that names the file, and the line where there is one, where it holds none;
    an OSError where it cannot be read, or is no regular file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = file.write_text('{"steps": 3}')
    >>> read_object(file, "train anew")
    {'steps': 3}
    """
    name = printable(str(file))
    try:
        value = json.loads(read_regular(file, JSON_BYTES).decode())
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name} is broken JSON in line {error.lineno} ({error.msg}): mend it, or {otherwise}."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no text in UTF-8: mend it, or {otherwise}.") from error
    except (ValueError, RecursionError) as error:
        # Brackets beyond all depth, or a number of thousands of digits.
        raise ValueError(f"{name} is broken JSON ({error}): mend it, or {otherwise}.") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {name}: check the folder's name.") from error
    except OSError as error:
        raise type(error)(
            f"{name} cannot be read ({error.strerror}): mend it, or {otherwise}."
        ) from error
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - what the file has is a value
            f"{name} is to hold a JSON object, and holds {type(value).__name__}: {otherwise}."
        )
    return value
