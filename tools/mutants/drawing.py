"""Mutants from all files: listing, drawing, and rewriting them as switches in a copy of the tree."""

import hashlib
import json
import os
import random
import re
import subprocess
import tomllib
from pathlib import Path

from planting import PARTS, ROOT, Wrong

# The tool that lists possible changes. Another version lists other mutants, so that a seed draws others.
CARGO_MUTANTS = "27.1.0"

# The package's tests are written in Python, and the other crates' tests do not reach it.
LEFT_OUT = ("python",)

# One per crate, at its root. `MUTANT` is read once. With `MUTANT_REACHED`, each mutant whose function is entered adds its
# number to that file.
SWITCH = """
/// Switches between code and drawn mutants.
#[allow(missing_docs, warnings, clippy::all)]
pub mod drawn {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    const UNREAD: u32 = u32::MAX;
    const RECORDING: u32 = u32::MAX - 1;
    static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    #[inline(always)]
    pub fn on(number: u32) -> bool {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen >= RECORDING { rarely(number) } else { chosen == number }
    }
    #[cold]
    fn rarely(number: u32) -> bool {
        let mut chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == UNREAD {
            chosen = match std::env::var_os("MUTANT_REACHED") {
                Some(_) => RECORDING,
                None => std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0),
            };
            CHOSEN.store(chosen, Ordering::Relaxed);
        }
        if chosen == RECORDING && !REACHED[number as usize].swap(true, Ordering::Relaxed) {
            use std::io::Write;
            let file = std::env::var_os("MUTANT_REACHED").map(|path| std::fs::OpenOptions::new().create(true).append(true).open(path));
            if let Some(Ok(mut file)) = file {
                let _ = file.write_all(format!("{number}\\n").as_bytes());
            }
        }
        chosen == number
    }
}
"""

# In front of a crate's root.
ALLOW = "#![allow(warnings)]\n"

# Strings, characters and comments, in which braces are ignored, and the braces.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|[bc]?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\.[^'\n]*|[^\\'\n])'|[{}]""", re.S
)


class Mutant:
    """One change, as cargo-mutants lists it."""

    def __init__(self, entry):
        self.file, self.name = entry["file"], entry["name"]
        # Without the line, which moves whenever something is added above.
        self.change = self.name.split(": ", 1)[1]
        self.crate = self.file.split("/")[1]
        self.replacement = entry["replacement"]
        self.lines = entry["span"]
        self.function = entry.get("function")
        self.number, self.why_equivalent = None, None

    def last_line(self):
        return (self.function["span"] if self.function else self.lines)["end"]["line"]

    def place(self, text):
        """The changed code, and the body around it, as places in the file's text; or the reason why it cannot be switched."""
        if self.function is None:
            return "a constant has no body that could be switched"
        starts = [0] + [found.end() for found in re.finditer("\n", text)]
        at = lambda point: starts[point["line"] - 1] + point["column"] - 1
        begin, end = at(self.function["span"]["start"]), at(self.function["span"]["end"])

        # The body's brace is the one that the function's last brace closes.
        opened, body = [], None
        for token in TOKEN.finditer(text, begin, end):
            if token.group() == "{":
                opened.append(token.start())
            elif token.group() == "}" and opened:
                body = (opened.pop() + 1, token.start())
        if body is None or opened or body[1] != end - 1:
            return "its function's body was not found"
        if re.search(r"\bconst\s+(unsafe\s+)?fn\b", text[begin : body[0]]):
            return "a const function cannot ask for a switch"
        change = at(self.lines["start"]), at(self.lines["end"])
        if not body[0] <= change[0] <= change[1] <= body[1]:
            return "it is not within its function's body"
        return change, body

    def code(self, text):
        """The line that is changed."""
        return text.split("\n")[self.lines["start"]["line"] - 1].strip()


def sources(root):
    return sorted(path for top in ("crates", "hosts") for path in (root / top).rglob("*.rs") if path.is_file())


def state_of_code():
    """Names the code that has mutants: the unit tests at a file's end may change."""
    digest = hashlib.sha256(CARGO_MUTANTS.encode())
    for path in sources(ROOT):
        name = str(path.relative_to(ROOT))
        if "/src/" in name:
            code = re.split(r"^#\[cfg\((?:all\()?test.*\]\nmod \w+ \{", path.read_text(), flags=re.M)[0]
            digest.update(f"{name}\0{code}".encode())
    return digest.hexdigest()[:16]


def list_mutants(scratch, say):
    """All mutants of the workspace. Listing takes a minute, so that the list is kept until the code changes."""
    kept = scratch / f"list-{state_of_code()}.json"
    if not kept.is_file():
        say("listing all mutants")
        entries = [
            {key: entry[key] for key in ("file", "name", "replacement", "span", "function")}
            for entry in ask_cargo_mutants(["--workspace", "--list", "--json"])
            if "/src/" in entry["file"] and entry["file"].split("/")[0] not in LEFT_OUT
        ]
        for old in scratch.glob("list-*.json"):
            old.unlink()
        scratch.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(entries))
    return [Mutant(entry) for entry in json.loads(kept.read_text())]


def ask_cargo_mutants(arguments):
    try:
        said = subprocess.run(["cargo", "mutants", "--version"], cwd=ROOT, capture_output=True, text=True)
        if said.stdout.split()[-1:] != [CARGO_MUTANTS]:
            install = f"cargo install cargo-mutants --locked --version {CARGO_MUTANTS}"
            raise Wrong(f"cargo-mutants {CARGO_MUTANTS} is needed: {install}")
        done = subprocess.run(["cargo", "mutants"] + arguments, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        raise Wrong("there is no cargo") from None
    if done.returncode != 0:
        raise Wrong(f"cargo mutants {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Drawing:
    """A seed's mutants: a file at random, in proportion to its lines, and one of its mutants, until enough can be built."""

    def __init__(self, mutants, wanted, seed, unbuildable):
        # By name, the reason why a mutant does not compile, from earlier builds of this code.
        self.by_file, self.unbuildable = {}, unbuildable
        for mutant in mutants:
            self.by_file.setdefault(mutant.file, []).append(mutant)
        self.texts = {file: (ROOT / file).read_text() for file in self.by_file}
        self.chance, self.wanted = random.Random(seed), wanted
        self.seen, self.chosen, self.dropped, self.last = set(), [], [], 0
        self.places = {}
        self.fill()

    def fill(self):
        """Draws until enough are chosen."""
        files = sorted(self.by_file)
        # Up to the last function that can be changed: unit tests are after it, and must not change a seed's draw.
        weights = [max(mutant.last_line() for mutant in self.by_file[file]) for file in files]
        total = sum(len(mutants) for mutants in self.by_file.values())
        while len(self.chosen) < self.wanted:
            if len(self.seen) == total:
                raise Wrong(f"only {len(self.chosen)} mutants can be built")
            mutant = self.chance.choice(self.by_file[self.chance.choices(files, weights)[0]])
            if mutant.name in self.seen:
                continue
            self.seen.add(mutant.name)
            place = mutant.place(self.texts[mutant.file])
            if not isinstance(place, str) and self.is_nested(mutant.file, place[1]):
                place = "its function is within another's, or around it, that was drawn before"
            # A number for each that has a body, so that numbers do not depend on earlier results.
            self.last += not isinstance(place, str)
            place = self.unbuildable.get(mutant.name, place)
            if isinstance(place, str):
                self.dropped.append((mutant, place))
                continue
            mutant.number = self.last
            self.places[mutant.number] = place
            self.chosen.append(mutant)

    def is_nested(self, file, body):
        others = (self.places[mutant.number][1] for mutant in self.chosen if mutant.file == file)
        return any(body != other and body[0] < other[1] and other[0] < body[1] for other in others)

    def drop(self, mutants, why):
        for mutant in mutants:
            self.chosen.remove(mutant)
            self.unbuildable[mutant.name] = why
            self.dropped.append((mutant, why))

    def rewritten(self):
        """The files' new texts, and by file the position of each mutant's code, in bytes."""
        texts, regions = {}, {}
        for file in sorted({mutant.file for mutant in self.chosen}):
            text, made, kept = self.texts[file], "", 0
            found = regions.setdefault(file, [])
            here = [mutant for mutant in self.chosen if mutant.file == file]
            for body in sorted({self.places[mutant.number][1] for mutant in here}):
                inside = [mutant for mutant in here if self.places[mutant.number][1] == body]
                made += text[kept : body[0]]
                whole = len(made.encode())
                for mutant in inside:
                    change = self.places[mutant.number][0]
                    made += f" if crate::drawn::on({mutant.number}) {{"
                    begin = len(made.encode())
                    made += text[body[0] : change[0]] + " " + mutant.replacement + " " + text[change[1] : body[1]]
                    found.append((begin, len(made.encode()), [mutant]))
                    made += "\n} else"
                made += f" {{{text[body[0] : body[1]]}\n}}"
                # Errors elsewhere in the function come from its several bodies.
                found.append((whole, len(made.encode()), inside))
                kept = body[1]
            texts[file] = made + text[kept:]
        return texts, regions


def lay_out(tree, texts, count):
    """Updates the tree. Unchanged files keep their times, so that only changed ones are rebuilt."""
    switch = SWITCH.replace("COUNT", str(count + 1))
    wanted = set()
    for part in PARTS:
        top = ROOT / part
        for path in [top] if top.is_file() else sorted(top.rglob("*")) if top.is_dir() else []:
            name = str(path.relative_to(ROOT))
            if not path.is_file():
                continue
            wanted.add(name)
            text = path.read_bytes()
            if name in texts:
                text = texts[name].encode()
            if re.fullmatch(r"(crates|hosts)/\w+/src/(lib|main)\.rs", name):
                text = ALLOW.encode() + text + switch.encode()
            there = tree / name
            if not (there.is_file() and there.read_bytes() == text):
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(text)
                os.chmod(there, path.stat().st_mode)
    for path in tree.rglob("*"):
        if path.is_file() and str(path.relative_to(tree)) not in wanted:
            path.unlink()


def blamed(messages, regions):
    """The mutants that cause the compiler's errors, each with its first message; and other errors."""
    found, others = {}, []
    for message in messages:
        diagnostic = message.get("message")
        if message.get("reason") != "compiler-message" or diagnostic["level"] != "error" or not diagnostic["spans"]:
            continue
        about = blame(diagnostic["spans"], regions)
        for mutant in about:
            found.setdefault(mutant, diagnostic["message"])
        if not about:
            others.append(diagnostic["rendered"])
    return found, others


def blame(spans, regions):
    places = []
    for span in sorted(spans, key=lambda span: not span["is_primary"]):
        while span:
            places.append(span)
            span = (span.get("expansion") or {}).get("span")
    for span in places:
        shift = len(ALLOW) if re.search(r"/src/(lib|main)\.rs$", span["file_name"]) else 0
        at = span["byte_start"] - shift
        for begin, end, mutants in regions.get(span["file_name"], []):
            if begin <= at < end:
                return mutants
    return []


class Equivalents:
    """Mutants that no test could detect, with the reason."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.entries = tomllib.load(file).get("equivalent", [])
        for number, entry in enumerate(self.entries, 1):
            if set(entry) != {"file", "change", "code", "why"}:
                raise Wrong(f"{path.name}: entry {number} needs file, change, code and why, and nothing else")

    def wrong(self):
        """Entries whose code no longer exists."""
        for entry in self.entries:
            path = ROOT / entry["file"]
            lines = [line.strip() for line in path.read_text().split("\n")] if path.is_file() else []
            if entry["code"] not in lines:
                yield f"equivalent.toml: {entry['file']} has no line `{entry['code']}`"

    def reason(self, mutant, text):
        for entry in self.entries:
            if (entry["file"], entry["change"], entry["code"]) == (mutant.file, mutant.change, mutant.code(text)):
                return entry["why"]
        return None
