"""The linker: modules as one script that does the same, and what it refuses."""

import re

import pytest

from glasshead.studio.page import code_alone, later_scripts, linked, modules, read, script


@pytest.fixture(scope="module")
def run(browser):
    """What a script leaves in `globalThis.result`, in a page without anything else."""
    page = browser.new_page()

    def run(sources, entry="main.js"):
        page.goto("about:blank")
        page.add_script_tag(content=linked(sources, entry))
        return page.evaluate("globalThis.result")

    yield run
    page.close()


def test_a_module_that_imports_three_others(run):
    sources = {
        "main.js": 'import { two, Three } from "./folder/two.js";\n'
        "import {\n  one,\n  seven as renamed,\n"
        '} from "./one.js";\nimport { last } from "./folder/last.js";\n'
        "globalThis.result = [one(), two(), new Three().value, renamed, last().next().value];\n",
        "one.js": "export function one() { return 1; }\nexport const seven = 7;",
        "folder/two.js": 'import { one } from "../one.js";\n'
        "export async function later() {}\n"
        "export function two() { return one() + one(); }\n"
        "export class Three { value = two() + one(); }\n",
        "folder/last.js": "export function* last() { yield 11; }\n",
        "unused.js": "globalThis.result = 'loaded';",
    }
    assert run(sources) == [1, 2, 3, 7, 11]
    assert "loaded" not in linked(sources, "main.js")


def test_the_same_names_in_different_modules_are_apart(run):
    sources = {
        "main.js": 'import { f } from "./a.js";\nimport { g } from "./b.js";\n'
        "const hidden = 3;\nglobalThis.result = [f(), g(), hidden, typeof window.hidden];",
        "a.js": "const hidden = 1;\nexport function f() { return hidden; }",
        "b.js": "let hidden = 1;\nhidden += 1;\nexport const g = () => hidden;",
    }
    assert run(sources) == [1, 2, 3, "undefined"]


def test_each_module_runs_once_and_after_what_it_needs(run):
    count = "globalThis.result = (globalThis.result ?? '') + "
    sources = {
        "main.js": f'import {{ a }} from "./a.js";\nimport {{ b }} from "./b.js";\n{count}"m";',
        "a.js": f'import {{ b }} from "./b.js";\n{count}"a";\nexport const a = b;',
        "b.js": f'{count}"b";\nexport const b = 1;',
    }
    assert run(sources) == "bam"


def test_scripts_are_strict_as_modules_are(run):
    assert run({"main.js": "globalThis.result = [(function () { return this; })()];"}) == [None]


@pytest.mark.parametrize(
    "written",
    [
        'const text = "export const a = 1; import { b } from";',
        "const text = 'import { b } from \"./b.js\"';",
        'const text = `\nimport { b } from "./b.js";\nexport const c = ${`\nexport const d`};\n`;',
        "// import { b } from './b.js'\nconst text = 1;",
        "/*\nexport default 3;\n*/ const text = 1;",
        "const text = /import|export[\"'`/]/.source;",
        "const text = 8 / 2 / 2; const other = 'export';",
        "const text = { export: 1, import: 2 }.export;",
        "const text = `${{ a: `}` }.a}` + 'export';",
    ],
)
def test_what_only_looks_like_an_import_is_left_alone(run, written):
    sources = {"main.js": f"{written}\nglobalThis.result = typeof text + 'fine';"}
    assert run(sources).endswith("fine")
    assert read("main.js", sources["main.js"]).needs == ()
    assert read("main.js", sources["main.js"]).gives == ()


REFUSED = [
    'import one from "./b.js";',
    'import * as all from "./b.js";',
    'import "./b.js";',
    'import { b } from "b.js";',
    "import { b } from './b.js';",
    'import { b } from "./b.js"',
    'const a = 1;\nimport { b } from "./b.js";',
    'const a = await import("./b.js");',
    "const a = import.meta.url;",
    "export default 1;",
    "export { a };",
    'export * from "./b.js";',
    "export let a = 1;",
    "export const { a } = b;",
    "  export const a = 1;",
    "{ export const a = 1; }",
]


@pytest.mark.parametrize("source", REFUSED)
def test_other_forms_are_refused(source):
    place = source.index("import") if "import" in source else source.index("export")
    line = source.count("\n", 0, place) + 1
    with pytest.raises(ValueError, match=rf"^view\.js, line {line}: a module of the studio"):
        linked({"view.js": source, "b.js": "export const b = 1;"}, "view.js")


def test_a_circle_is_refused_with_its_modules():
    sources = {
        "main.js": 'import { a } from "./a.js";',
        "a.js": 'import { b } from "./folder/b.js";\nexport const a = 1;',
        "folder/b.js": 'import { a } from "../a.js";\nexport const b = 1;',
    }
    with pytest.raises(ValueError, match=r"in a circle, as a\.js > folder/b\.js > a\.js do"):
        linked(sources, "main.js")


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"main\.js imports a\.js, which does not exist"):
        linked({"main.js": 'import { a } from "./a.js";'}, "main.js")
    sources = {"main.js": 'import { b as a } from "./a.js";', "a.js": "export const a = 1;"}
    with pytest.raises(ValueError, match=r"main\.js imports b of a\.js, which does not export"):
        linked(sources, "main.js")


@pytest.mark.parametrize("markup", ["</script>", "</SCRIPT", "<!--", "<script>"])
def test_what_would_end_the_script_is_refused(markup):
    with pytest.raises(ValueError, match="a script in a page cannot hold"):
        linked({"main.js": f"const text = '{markup}';"}, "main.js")


@pytest.mark.parametrize(("source", "what"), [("\nlet a = `b", "template"), ("\n\nf('a", "string")])
def test_what_has_no_end_is_refused(source, what):
    line = source.count("\n") + 1
    with pytest.raises(ValueError, match=rf"^main\.js, line {line}: this {what} has no end"):
        linked({"main.js": source}, "main.js")


def test_code_keeps_its_place():
    source = "a('x');\n// y\n`t ${b('z') + `u`} v` + /[/'\"]+/g;\n"
    code = code_alone(source)
    assert code == f"a(   );\n    \n     b(   ) +{' ' * 9}+ {' ' * 9};\n"
    assert len(code) == len(source)


def test_all_modules_of_the_studio_have_the_form():
    sources = modules()
    assert {"app.js", "dom.js", "views/steps.js", "views/training.js"} <= set(sources)
    for name, source in sources.items():
        read(name, source)
    # What runs without a server comes with no studio that has one.
    served = [script(), *later_scripts().values()]
    assert not any('["live' in one for one in served)
    scripts = [*served, linked(sources, "live.js")]
    found = [
        name
        for one in scripts
        for name in re.findall(r'^\$modules\["(.+?)"\] \?\?= ', one, re.MULTILINE)
    ]
    assert set(found) == set(sources)
    for one in scripts:
        assert not re.search(r"^\s*(import|export)\b", code_alone(one), re.MULTILINE)
