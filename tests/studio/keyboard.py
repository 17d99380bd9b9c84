"""What is reached by the key Tab alone."""


def reached_by_tab(page, name, times=40):
    """The names that a function of JavaScript gives to what has the focus, one after the other."""
    reached = []
    for _ in range(times):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(name))
    return reached
