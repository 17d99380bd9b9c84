"""The strings of the page by name, translated to one of five languages."""

from dataclasses import fields

from glasshead.explanation.settings import ExplanationSettings, Setting
from glasshead.explanation.translations import Say


def _(sentence: str) -> str:
    """Mark a string for translation and return it unchanged."""
    return sentence


SHELL = {
    "shell.title": _("glasshead studio"),
    "shell.views": _("Views"),
    "shell.language": _("Language"),
    "shell.nothing": _("no model: the worked example"),
    "shell.model": _("{name}, {layers} × {heads} heads, {parameters} parameters"),
    "shell.model.plain": _("{name}, {parameters} parameters"),
    "shell.model.none": _("{name}, not loaded"),
    "shell.kind.weights": _("Stored weights"),
    "shell.kind.classify": _("Classifier"),
    "shell.kind.translate": _("Translator"),
    "shell.kind.write": _("Language model"),
    "shell.kind.model": _("Model"),
    "shell.kind.vision": _("Vision model"),
    "shell.hidden": _("grey: hidden by the mask"),
    "shell.colors": _("Colours"),
    "shell.linear": _("linear"),
    "shell.log": _("logarithmic"),
    "shell.zoom": _("Zoom"),
    "shell.nearer": _("Zoom in"),
    "shell.farther": _("Zoom out"),
    "shell.all": _("All"),
    "shell.save": _("Save the picture"),
    "shell.png": _("PNG"),
    "shell.svg": _("SVG"),
    "shell.gone": _(
        "The studio does not answer. Perhaps it was stopped: start it again, and this page will "
        "continue by itself."
    ),
    "shell.back": _("The studio is back."),
    "shell.fault": _("Something went wrong on this page ({error}): please report it."),
    "shell.how": _("These commands train a small translator, and open it here:"),
    "shell.again": _("Try again"),
    "shell.choose": _("Choose a text"),
    "shell.text": _("Text, of any length"),
    "shell.file": _("or a text file"),
    "shell.read": _("Read"),
    "shell.origin.held_out": _(
        "A text from the held-out part of this run's data, on which it was not trained."
    ),
    "shell.origin.own": _(
        "A text of the studio's own, as a model alone comes without held-out data."
    ),
    "shell.origin.unreadable": _(
        "A text of the studio's own, as the held-out part of this run's data cannot be read: {why}"
    ),
    "shell.large": _("The limit is {most} bytes, and this file has {size}: choose a shorter text."),
    # Separates the items of a list.
    "shell.comma": _(", "),
    # Stands between a name and its value.
    "shell.colon": _(": "),
    "shell.skip": _("Skip to the view"),
}


PROMPT = {
    "prompt.title": _("Prompt"),
    "prompt.none": _("No model loaded. Start the studio with a model folder."),
    "prompt.text": _("Type, and see what the model makes of it"),
    "prompt.empty": _("Enter at least one word, or choose a text."),
    "prompt.words": _("The text; arrow keys go from token to token"),
    "prompt.why": _(
        "In layer {layer}, head {head}, “{query}” gives {weight} of its attention to “{key}”."
    ),
    "prompt.why.example": _(
        "“{query}” gives {weight} of its attention to “{key}”: their score is {score}, the largest "
        "of its row."
    ),
    "prompt.numbers": _("Every number of it"),
    "prompt.every": _("All weights, one row per query"),
    "prompt.map": _("Its whole map"),
    "prompt.top": _("Shown"),
    "prompt.temperature": _("Temperature"),
    "prompt.predicts.tokens": _("Next token"),
    "prompt.predicts.labels": _("Label"),
    "prompt.predicts.translations": _("Translations"),
    "prompt.predicts.nothing": _("This model predicts nothing: it has no head for that."),
    "prompt.follow": _("Let the text go on with it"),
    "prompt.loss": _("Loss on this text: {loss} nats a token"),
    "prompt.losses": _("Loss on this text: {loss} nats a token, {before} with all heads"),
    "prompt.click": _("A click on a head"),
    "prompt.shows": _("shows its arcs"),
    "prompt.takes": _("takes it away"),
    "prompt.layer": _("Take all heads of layer {layer} away, or put them back"),
    "prompt.gone": _("Layer {layer}, head {head}: taken away"),
    "prompt.away": _(
        "Taken away: {heads}. The line in each bar is the probability with all heads."
    ),
    "prompt.undo": _("Undo"),
    "prompt.back": _("Put all back"),
}


STEPS = {
    **{
        f"steps.{each.name}": Setting.of(each).label
        for each in fields(ExplanationSettings)
        if Setting.of(each).label
    },
    "steps.title": _("Steps"),
    "steps.show": _("Show"),
    "steps.examples": _("The worked examples"),
    "steps.choices": _("Choices"),
    "steps.mask.none": _("none"),
    "steps.mask.causal": _("causal"),
    "steps.mask.window": _("window"),
    "steps.matrices": _("The matrices, in the order in which they are computed"),
    "steps.queries": _("Queries"),
    "steps.keys": _("Keys"),
    "steps.values": _("Values"),
    "steps.scores": _("Scores"),
    "steps.scaled": _("Scaled"),
    "steps.masked": _("Masked"),
    "steps.weights": _("Weights"),
    "steps.context": _("Context"),
    "steps.sum": _("The sum that made the cell"),
    "steps.full": _("in full"),
    "steps.hint": _(
        "Point at a cell, or walk with Tab and the arrow keys; Enter explains the word of the row."
    ),
    "steps.words": _("In words"),
    "steps.legend": _("How the colours are read"),
    "steps.hidden": _("hatched: hidden"),
    "steps.made": _("framed: what the cell is made of"),
    "steps.of.queries": _("Number {number} of the query of “{word}”"),
    "steps.of.keys": _("Number {number} of the key of “{word}”"),
    "steps.of.values": _("Number {number} of the value of “{word}”"),
    "steps.of.scores": _("Score: how well the key of “{key}” fits the query of “{query}”"),
    "steps.of.scaled": _("Scaled score of “{query}” and “{key}”"),
    "steps.of.masked": _("Score of “{query}” and “{key}” after masking"),
    "steps.of.weights": _("Weight: how much “{query}” takes of “{key}”"),
    "steps.of.context": _("Number {number} of the context of “{word}”"),
    "steps.embedding": _("It is number {number} of the embedding x of the word, as it is."),
    "steps.projected": _("It is the embedding x of the word times column {number} of the matrix."),
    "steps.seen": _("The mask lets “{query}” see “{key}”: the score stays as it is."),
    "steps.seen.none": _("There is no mask: the score stays as it is."),
    "steps.hides.causal": _(
        "“{key}” comes after “{query}”, and the causal mask hides what comes later."
    ),
    "steps.hides.window": _(
        "“{key}” is more than one word away from “{query}”, and the window ends there."
    ),
    "steps.nothing": _("The key is hidden, and what is hidden gets no weight."),
    "steps.largest": _("The score is the largest of the row, so its key gets all the weight."),
    "steps.first": _("Ties go to the first, so its key gets all the weight."),
    "steps.second": _("An equal score stands before it and wins, so this key gets nothing."),
    "steps.smaller": _("A larger score stands in the row, so this key gets nothing."),
    "steps.sparse": _("τ is chosen so that the weights of the row add up to 1."),
    "steps.sink": _("The first term of Σ is the sink, which takes weight and gives no value."),
    "steps.shifted": _(
        "The largest score m = {largest} is subtracted from each score, which changes nothing."
    ),
    "steps.hard": _("β = ∞ gives all the weight to the largest score, as HardMax does."),
}


HEADS = {
    "heads.title": _("Attention heads"),
    "heads.none": _("No model loaded. Start the studio with a model folder."),
    # Text
    "heads.opening": _("Loading the model…"),
    "heads.encoding": _("Cutting the text into tokens…"),
    "heads.reading": _("The model is reading…"),
    "heads.naming": _("Finding the roles of the heads…"),
    "heads.storing": _("Storing the maps…"),
    "heads.said": _("Tokens: {tokens}. Layers: {layers}. Heads: {heads}."),
    "heads.cut": _("The text is cut: the model read {tokens} of its {of} tokens."),
    # Controls
    "heads.sink": _("With the first token"),
    # Grid
    "heads.grid": _("All heads, one row per layer"),
    "heads.layer": _("layer"),
    "heads.head": _("head"),
    "heads.one": _("Layer {layer}, head {head}: {role}, mean entropy {entropy} nats"),
    "heads.absent": _("This file does not hold the whole map of this head."),
    "heads.under": _(
        "In a map, rows are queries and columns are keys. Below it stand the head's role and the "
        "mean entropy of its queries in nats. Arrow keys go from map to map, Enter opens one."
    ),
    # Roles
    "heads.roles": _("Roles"),
    "heads.roles_told": _(
        "A head has a role if, over this text, the mean weight that it gives to the keys of that"
        " role is at least halfway from the weight that uniform attention would give them to 1. "
        "The table shows the scores of the open head, and how many of all heads have each role."
    ),
    "heads.role": _("Role"),
    "heads.score": _("Score"),
    "heads.having": _("Heads"),
    "heads.role.none": _("no role"),
    "heads.role.previous": _("previous"),
    "heads.role.first": _("first"),
    "heads.role.induction": _("induction"),
    "heads.role.duplicate": _("duplicate"),
    "heads.role.local": _("local"),
    "heads.role.broad": _("broad"),
    "heads.means.previous": _("looks at the token before the query"),
    "heads.means.first": _("looks at the first token, the sink for attention that is left over"),
    "heads.means.induction": _(
        "looks at the token that followed another occurrence of the query’s token"
    ),
    "heads.means.duplicate": _("looks at another occurrence of the query’s token"),
    "heads.means.local": _("looks at tokens at most four positions away"),
    "heads.means.broad": _("looks at all tokens alike: its entropy is close to the maximum"),
    # One head
    "heads.open": _("The head that is open"),
    "heads.named": _("Layer {layer}, head {head}"),
    "heads.map": _(
        "Map of the head, one row per query, one column per key: arrow keys, Home, End, Page up "
        "and Page down move the cross-hair"
    ),
    "heads.pooled": _("Each pixel shows the largest of the weights in it."),
    "heads.readout": _("Under the cross-hair"),
    "heads.query": _("Query"),
    "heads.key": _("Key"),
    "heads.weight": _("Weight"),
    "heads.rank": _("Rank among its keys"),
    "heads.of": _("{rank} of {count}"),
    "heads.entropy": _("Entropy"),
    "heads.distance": _("Mean distance"),
    "heads.received": _("Mass the key receives"),
    "heads.nats": _("in nats"),
    "heads.tokens": _("in tokens"),
    "heads.arcs": _("The text with the arcs of the heads"),
    "heads.arcs_told": _(
        "Full arcs go to what the token looks at; dashed ones come from who looks at it."
    ),
    "heads.pin": _("Keep its arcs"),
    "heads.unpin": _("Let go of its arcs"),
    "heads.some": _("The heads that are chosen; arrow keys go from one to another"),
    "heads.none_such": _("No head has this role here."),
    "heads.sort": _("Order"),
    "heads.sort.place": _("by layer"),
    "heads.sort.entropy": _("lowest entropy first"),
    "heads.sort.score": _("by score: {role}"),
    "heads.test": _("Run the induction test on repeated random tokens"),
    "heads.testing": _("The model is reading repeated random tokens…"),
    "heads.test.on": _("Roles on"),
    "heads.test.text": _("this text"),
    "heads.test.random": _("random tokens"),
    "heads.test.told": _(
        "Induction test: {rows} texts of {length} tokens, {period} at random and the same again, "
        "{times} times in all. Only a head that finds the earlier place can tell what follows."
    ),
    "heads.compare": _("Compare with another text"),
    "heads.model": _("Model"),
    "heads.minus_model": _("Compared with"),
    "heads.alone": _("no other model"),
    "heads.stop": _("Stop comparing"),
    "heads.sides": _("Side shown"),
    "heads.side_map": _("Map of {side}"),
    "heads.text": _("The text as the query sees it"),
    "heads.text_told": _(
        "Each token is shaded by its weight for the framed one, the query. Point at a token to "
        "make it the query; the key is underlined."
    ),
}


ATLAS = {
    "atlas.title": _("Atlas"),
    "atlas.none": _(
        "The atlas is a map of the attention of a long text: start the studio with the folder of a "
        "model, or with a file of stored weights."
    ),
    "atlas.reading": _("Reading the text…"),
    "atlas.surveying": _("Going once through every pair of tokens…"),
    "atlas.part": _("The model reads the beginning of the text: {length} of its {of} tokens."),
    "atlas.layer": _("Layer"),
    "atlas.matrix": _("Matrix"),
    "atlas.head": _("Head"),
    "atlas.whose": _("layer {layer}, head {head}"),
    "atlas.whose_stored": _("matrix {layer}, head {head}"),
    "atlas.top": _("Top of the colour scale"),
    "atlas.legend": _("mean weight of one key"),
    "atlas.map": _(
        "Attention map: queries from top to bottom ({queries}), keys from left to right ({keys})"
    ),
    "atlas.keys": _(
        "Drag or use the arrow keys to move the map, the wheel or + and − to zoom, Home for the "
        "whole; Shift and the arrow keys move the cross-hair by one cell."
    ),
    "atlas.query": _("Query {from}"),
    "atlas.key": _("Key {from}"),
    "atlas.queries": _("Queries {from} to {to}"),
    "atlas.keys_at": _("Keys {from} to {to}"),
    "atlas.single": _("the weight that query {query} gives to key {key}"),
    "atlas.mean": _(
        "the weight that a query gives to all of these keys together, on average (queries: "
        "{queries}, keys: {keys})"
    ),
}


ALIGNMENT = {
    "alignment.title": _("Alignment"),
    "alignment.none": _(
        "An alignment needs a translator: start the studio with the folder of a run of glasshead"
        " train translate."
    ),
    "alignment.sentence": _("A sentence to translate"),
    "alignment.translate": _("Translate"),
    "alignment.beam": _("Beam width"),
    "alignment.layer": _("Layer of the decoder"),
    "alignment.head": _("Head"),
    "alignment.mean": _("mean"),
    "alignment.candidates": _("What the beam found"),
    "alignment.candidate": _("Translation"),
    "alignment.score": _("Score"),
    "alignment.ln_p": _("ln p"),
    "alignment.ranked": _(
        "By score: ln p of the whole translation, in nats, divided by "
        "((5 + tokens) / 6)^{penalty}, its end counted among the tokens."
    ),
    "alignment.cut_off": _("cut off"),
    "alignment.empty": _("(nothing)"),
    "alignment.picture": _("What each word of the translation looked at"),
    "alignment.source": _("Words of the sentence"),
    "alignment.target": _("Words of the translation"),
    "alignment.hint": _(
        "Point at a word, or move among the words with the arrow keys, to read its weights; Esc "
        "clears the selection."
    ),
    "alignment.took": _("“{word}” took {weights}."),
    "alignment.gave": _("“{word}” gave {weights}."),
    "alignment.from": _("{weight} from “{word}”"),
    "alignment.to": _("{weight} to “{word}”"),
    "alignment.table": _(
        "The weights, one row per word of the translation; each row sums to 1: {what}."
    ),
    "alignment.mean_of.layer": _("mean of all layers"),
    "alignment.mean_of.head": _("mean of all heads"),
    "alignment.one.layer": _("layer {layer}"),
    "alignment.one.head": _("head {head}"),
    "alignment.nothing": _("This translation has no words, so nothing looked at the sentence."),
}


MODEL = {
    "model.title": _("Model"),
    "model.none": _("No model loaded. Start the studio with a model folder."),
    "model.help": _(
        "Click a head or a token; drag to move, the wheel or + and − to zoom. With the keyboard, "
        "arrow keys go from head to head, Enter opens one, and Esc shows the whole model."
    ),
    "model.at": _("At the token “{query}”"),
    "model.writes": _("Norm of what it writes"),
    "model.context": _("Norm of its context vector"),
    "model.context_why": _(
        "The output projection of this model cannot be told apart by heads, which are therefore "
        "lit by the norm of their context vectors."
    ),
    "model.share": _("Share of its layer’s attention output"),
    "model.rank": _("Rank among all heads"),
    "model.of": _("{rank} of {count} heads"),
    "model.reads": _("Reads most from"),
    "model.lines": _(
        "Lines down: share of the layer’s attention output, orange where a head works against it. "
        "Lines from the tokens: attention weights."
    ),
    "model.take": _("Take it away"),
    "model.as_table": _("The same as a table"),
    "model.table.writes": _("Norm of what each head writes at “{query}”"),
    "model.table.context": _("Norm of each head’s context vector at “{query}”"),
    "model.layer": _("Layer {layer}"),
    "model.head": _("Head {head}"),
    "model.mlp": _("MLP"),
}


PICTURE = {
    "picture.title": _("Picture"),
    "picture.none": _(
        "No vision model loaded. Start the studio with the folder of one, such as ViT or DINOv2."
    ),
    "picture.file": _("A picture of yours, which stays on this machine"),
    "picture.large": _(
        "The limit is {most} bytes, and this picture has {size}: choose a smaller one."
    ),
    "picture.query": _("Where it looks from"),
    "picture.patch": _("Patch at row {row}, column {column}"),
    "picture.kind.class": _("class token"),
    "picture.kind.registers": _("registers"),
    "picture.kind.patches": _("patches"),
    "picture.canvas": _(
        "The picture; click a patch or move by arrow keys to see where the model looks from there"
    ),
    "picture.rollout": _("Rollout over all layers"),
    "picture.all": _("All heads, one row per layer"),
    "picture.sums": _("Weight by kind of token: {sums}."),
    "picture.largest": _("Largest weight of a patch"),
    "picture.table": _("Weight of each patch"),
}


TRAINING = {
    "training.title": _("Training"),
    "training.none": _(
        "There is no training here: start the studio with the folder of a run, which "
        "`glasshead train` makes."
    ),
    "training.away": _(
        "The run folder is not there at the moment. This page goes on by itself when it is back."
    ),
    "training.phase.waiting": _("Waiting for the first row"),
    "training.phase.going": _("In progress"),
    "training.phase.quiet": _("No new records"),
    "training.phase.finished": _("Finished"),
    "training.phase.patience": _("Finished early"),
    "training.said.waiting": _("Nothing has been logged yet; the files were made {age} ago."),
    "training.said.going": _("Last written {age} ago."),
    "training.said.quiet": _(
        "Nothing has been written for {age}. Perhaps training was interrupted: the command that "
        "began it resumes it with --resume."
    ),
    "training.said.finished": _("Last written {age} ago."),
    "training.said.patience": _(
        "Stopped because validation no longer improved (patience: {patience}). Last written "
        "{age} ago."
    ),
    "training.progress": _("Step {step} of {steps}"),
    "training.progress.open": _("Step {step}"),
    "training.figure.step": _("step"),
    "training.figure.left": _("time left"),
    "training.figure.seconds": _("time taken"),
    "training.figure.speed": _("steps per second"),
    "training.figure.loss": _("training loss"),
    "training.figure.best": _("best {name}, step {step}"),
    "training.figure.learning_rate": _("learning rate"),
    "training.smoothing": _("Smoothing"),
    "training.smoothing.none": _("none"),
    "training.loss": _("Loss"),
    "training.curve.loss": _("training"),
    "training.curve.smoothed": _("training, smoothed"),
    "training.curve.validation": _("validation"),
    "training.metric": _("Validation: {name}"),
    "training.learning_rate": _("Learning rate"),
    "training.best": _("best validation"),
    "training.alarm": _("alarm"),
    "training.step": _("step"),
    "training.at_step": _("{label} (step {step})"),
    "training.thinned": _(
        "The picture shows the smallest and the largest number of each few rows; all {count} rows "
        "are in log.csv."
    ),
    "training.thinned.heads": _(
        "Neighbouring steps are drawn together, with their smallest and their largest number; all "
        "{count} readings of each head are in attention.csv."
    ),
    "training.heads.left_out": _("{shown} of {count} heads are shown."),
    "training.heads": _("Heads"),
    "training.unwatched": _(
        "This run was not watched: `glasshead train --watch` records what the heads do while "
        "they learn."
    ),
    "training.measure.normalized_entropy": _("Entropy, as a share of its maximum"),
    "training.measure.max_score": _("Maximum score"),
    "training.reading.normalized_entropy": _("entropy"),
    "training.reading.max_score": _("maximum score"),
    "training.head": _("head {head}"),
    "training.the_model": _("the model"),
    "training.alarms": _("Alarms"),
    "training.alarms.none": _("No head has raised an alarm."),
    "training.alarms.some": _("The last {shown} of {count} alarms."),
    "training.sentence": _("Message"),
    "training.said.entropy_collapse": _(
        "step {step}: the entropy of head {head} in {layer} is {value} of its maximum, below "
        "{threshold}: lower the learning rate, warm up for longer, or normalise queries and keys."
    ),
    "training.said.maximum_logit": _(
        "step {step}: the maximum score of head {head} in {layer} is {value}, above {threshold}: "
        "lower the learning rate, warm up for longer, or normalise queries and keys."
    ),
    "training.rows": _("The last rows and validations of log.csv"),
    "training.alarms.raised": _("Alarms: {count}, the first at step {step}"),
    "training.messages": _("What the alarms say"),
    "training.kind.entropy_collapse": _("Entropy below {threshold} of its maximum"),
    "training.kind.maximum_logit": _("Maximum score above {threshold}"),
    "training.group": _("{name} · heads: {heads} · steps: {steps}"),
    "training.more": _("and {count} more"),
    "training.threshold": _("alarm at {value}"),
    "training.extreme.normalized_entropy": _("Lowest entropy of any head"),
    "training.extreme.max_score": _("Highest score of any head"),
    "training.over": _("Other runs ({count})"),
    "training.log.y": _("Logarithmic values"),
    "training.log.x": _("Logarithmic steps"),
    "training.keys": _(
        "Drag over a chart to zoom, or turn the wheel with Ctrl; on the keyboard, + and − zoom, "
        "and 0 shows the whole run."
    ),
    "training.checkpoints": _("Compare two checkpoints"),
    "training.checkpoints.told": _(
        "The best validation and the last step of a run read one text. The farther a head's "
        "attention has moved between them, the deeper its colour: 0 means the same weights, 1 that "
        "no key is shared."
    ),
    "training.checkpoints.none": _(
        "Two checkpoints are needed, and this run has not validated yet."
    ),
    "training.checkpoint.first": _("Checkpoint A"),
    "training.checkpoint.second": _("Checkpoint B"),
    "training.best_of": _("{run}, best validation"),
    "training.last_of": _("{run}, last step"),
    "training.text": _("Text (its first 64 tokens are read)"),
    "training.moved": _("How far each head has moved (total variation)"),
    "training.difference": _("B − A"),
}


REPORT = {
    "report.missing": _("This report does not contain that: the studio shows it, given the model."),
    "report.noscript": _("This page needs JavaScript, all of which is in the file itself."),
    "report.sentence": _(
        "This is the beginning of the text (words and marks: {count}): the studio takes any "
        "sentence."
    ),
    "report.heads": _(
        "To keep the file small, it holds the whole maps of {kept} of the {of} heads: the studio "
        "shows all."
    ),
    "report.sentences": _(
        "This is the beginning of the text (sentences: {count}): the studio takes any sentence."
    ),
}


WALK = {
    "walk.title": _("The walk of one query"),
    "walk.play": _("Play"),
    "walk.pause": _("Pause"),
    "walk.back": _("One frame back"),
    "walk.on": _("One frame on"),
    "walk.at": _("Frame of the walk"),
    "walk.others": _("{count} other keys"),
    "walk.query": _("“{word}” asks with its query, a vector of {count} numbers."),
    "walk.score": _(
        "The query slides over the keys: its products with each of them add up to a score."
    ),
    "walk.score.rest": _("So it goes on for {count} other keys."),
    "walk.scaled": _("Each score is multiplied by β = {beta}."),
    "walk.capped": _("The softcap bends large scores, so that none is beyond ±{cap}."),
    "walk.biased": _("A bias is added to each score."),
    "walk.masked": _("The mask hides keys ({hidden}): their scores become −∞."),
    "walk.power": _(
        "e to the power of each score: all are positive now, and large ones stand out."
    ),
    "walk.weights": _("Divided by their sum they become weights, which together fill one vessel."),
    "walk.sunk": _(
        "Divided by their sum with the sink, they become weights, which fill a part of one."
    ),
    "walk.normalized": _("{normalizer} turns the scores into weights."),
    "walk.mix": _("The values mix: each adds its share, value times weight, to the context."),
    "walk.mix.rest": _("So do {count} other keys, together."),
    "walk.context": _("The context of “{word}” is the sum of the values, each times its weight."),
    "cell.open": _("Open this cell in Steps"),
    "cell.example": _("The worked example, or a sentence of your own"),
    "cell.layer": _("Layer, from 0"),
    "cell.head": _("Head, from 0"),
    "cell.strongest": _("the strongest"),
    "cell.dims": _("vectors of {dim} numbers, {tokens} tokens"),
    "cell.cut": _("the beginning of {of} tokens"),
    "cell.softcap": _("softcap {cap}"),
    "cell.mask": _("mask {mask}"),
    "cell.group": _("reads key head {group} of {groups}"),
    "cell.sink": _("softmax with a sink of score {sink}"),
    "cell.weights": _("Weights of “{word}” on all keys"),
    "cell.capped": _("Capped"),
    "cell.bias": _("Bias"),
    "cell.table": _("The keys with the largest weights, and the chosen one"),
}


_PARTS = (
    SHELL,
    PROMPT,
    STEPS,
    WALK,
    HEADS,
    ALIGNMENT,
    ATLAS,
    MODEL,
    PICTURE,
    TRAINING,
    REPORT,
)


def words(lang: str) -> dict[str, str]:
    """Return the page's strings by name, in a language.

    Errors: a ValueError where the language is unknown.

    >>> words("es")["shell.language"]
    'Idioma'
    """
    say = Say(lang).translate
    return {name: say(sentence) for part in _PARTS for name, sentence in part.items()}
