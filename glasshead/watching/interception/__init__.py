"""Interception: the functions, operators and interfaces at which attention calls are captured.

Four files replace a function:

    opening.py              which blocks are open, and from when to when functions are replaced
    replaced_functions.py   how one function is replaced, and restored
    session.py              `intercepted` calls the replacement, and `Session` reports what has run
    patches.py              the replacements of PyTorch's functions, which call what captures them,
                            such as `capture_sdpa` in torch_attention.py
"""
