//! `ctl`: inspects and changes a served device, through the service's HTTP.
//!
//! Invariants: a verb is one request; an error from the server is printed as one sentence, with
//! exit code 1; a mistake in the arguments gives exit code 2, whichever side finds it. Absent: the
//! verbs themselves (`remap_ssd_service::Served`).

use crate::failure::Failure;
use crate::output::{self, pairs, table};
use remap_ssd_http::{Token, client};
use remap_ssd_sim::report::format::{bytes, exact, seconds};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Inspects and changes a device that `serve --http` serves.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// HTTP address of the service (`serve --http`).
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9420")]
    pub connect: String,
    /// The file with the token (`serve --http-token`); required for all verbs that change something
    /// [default: ~/.config/remap-ssd/token, if it is there].
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    verb: CtlCommand,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd ctl hosts
  remap-ssd ctl drop nqn.2014-08.org.nvmexpress:uuid:...
  remap-ssd ctl --token token power-cut      # a token in another place than ~/.config/remap-ssd/token
  remap-ssd ctl inject read-error --lba 100 --blocks 8
  remap-ssd ctl latency emulated
  remap-ssd ctl ana 127.0.0.1:4420 inaccessible
  remap-ssd ctl namespaces --json; remap-ssd ctl release 1     # a dead host's reservation
  remap-ssd ctl snapshot /backup/disk-monday && remap-ssd image check /backup/disk-monday
  remap-ssd ctl statistics --json

Exit codes: 0 success, 1 the service refused or cannot be reached, 2 mistake in the arguments.";

#[derive(Debug, clap::Subcommand)]
enum CtlCommand {
    /// Lists connected hosts.
    Hosts,
    /// Lists the namespaces.
    Namespaces,
    /// Shows the parameters that the device and the service were created with.
    Config,
    /// Shows the counters of the translation layer since the last reset.
    Statistics,
    /// Ends a host's connections. It may reconnect at once, unless `serve --allow` prevents it.
    Drop {
        /// The host's name (NQN), or the number of one of its connections.
        host: String,
    },
    /// Cuts the device's power and restores it: connections end, and the device recovers from flash
    /// and NVRAM.
    PowerCut,
    /// Damages the medium.
    Inject {
        #[command(subcommand)]
        what: Inject,
    },
    /// Sets when commands complete: at once, or when flash would have completed them.
    Latency {
        /// none or emulated.
        #[arg(value_parser = ["none", "emulated"])]
        mode: String,
    },
    /// Switches deduplication of writes on or off, on a device created with it.
    Dedup {
        /// on or off.
        #[arg(value_parser = ["on", "off"])]
        mode: String,
    },
    /// Resets the counters of `statistics`.
    Stats {
        /// `reset`: `statistics` counts from now on. Metrics and `io stat` are not affected.
        #[arg(value_parser = ["reset"])]
        what: String,
    },
    /// Sets the ANA state of a portal, for hosts with multipath: they use the best one, and none
    /// that is inaccessible.
    Ana {
        /// Address of the portal, as in `--listen`, or `all`.
        portal: String,
        /// The state.
        #[arg(value_parser = ["optimized", "non-optimized", "inaccessible"])]
        state: String,
    },
    /// Removes a namespace's reservation and all registrations, for hosts that are permanently
    /// gone.
    Release {
        /// The namespace.
        nsid: u32,
    },
    /// Copies the image while it is served, as a point-in-time copy.
    Snapshot {
        /// A folder to create, on the service's machine.
        to: PathBuf,
    },
    /// Sets the log level of the server.
    Log {
        /// error, warn, info, debug or trace: messages of this level and more serious ones.
        #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
        level: String,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Inject {
    /// Makes blocks unreadable until they are rewritten.
    ReadError {
        /// The namespace.
        #[arg(long, value_name = "N", default_value_t = 1)]
        nsid: u32,
        /// First block of 4096 bytes.
        #[arg(long)]
        lba: u64,
        /// Number of blocks.
        #[arg(long, default_value_t = 1)]
        blocks: u32,
    },
    /// Flips a bit of NVRAM. One flipped bit of a word is corrected, two are not.
    NvramFlip {
        /// The word of 8 bytes.
        #[arg(long)]
        word: u64,
        /// The bit.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..64))]
        bit: u32,
    },
    /// Removes all planted faults.
    None,
}

/// A snapshot of a large image takes time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs `ctl`.
///
/// # Errors
/// The service cannot be reached, or refuses.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let (path, body) = request(&args.verb)?;
    let file = args.token.clone().or_else(Token::default_file);
    let token =
        file.map(|file| Token::load(&file).map_err(|error| Failure::about(file.display(), error)));
    let token = token.transpose()?;

    let body = body.map(|body| body.to_string().into_bytes());
    // Only what takes long is seen, such as a snapshot.
    let bar = output::bar(args.json, None, "{spinner} {elapsed}");
    let answer = client::ask(
        &args.connect,
        &path,
        body.as_deref(),
        token.as_ref(),
        PATIENCE,
    );
    bar.finish_and_clear();
    let answer = answer.map_err(|error| Failure::about(&args.connect, error))?;

    // A response that is not JSON comes from another server at that address.
    let value: Value = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::about(&args.connect, "what answers there is not remap-ssd serve"))?;
    if answer.status != 200 {
        let sentence = value["error"].as_str().unwrap_or("it refused").to_owned();
        // The server's refusals keep their exit codes: a mistake in the arguments has the same code
        // whichever side finds it.
        return Err(match answer.status {
            400 => Failure::Usage(sentence),
            // The option helps only if no token was sent.
            401 | 403 if token.is_none() => {
                Failure::failed(format_args!("{sentence} (ctl --token FILE)"))
            }
            _ => Failure::Failed(sentence),
        });
    }
    if args.json {
        output::json(&value)
    } else {
        show(&args.verb, &value)
    }
}

/// The path of a verb, and the body to post.
fn request(verb: &CtlCommand) -> Result<(String, Option<Value>), Failure> {
    let get = |what: &str| Ok((format!("/api/{what}"), None));
    let post = |verb: &str, body: Value| Ok((format!("/api/ctl/{verb}"), Some(body)));

    match verb {
        CtlCommand::Hosts => get("hosts"),
        CtlCommand::Namespaces => get("namespaces"),
        CtlCommand::Config => get("config"),
        CtlCommand::Statistics => get("statistics"),
        CtlCommand::Drop { host } => post("drop", json!({ "host": host })),
        CtlCommand::PowerCut => post("power-cut", json!({})),
        CtlCommand::Inject { what } => post("inject", injected(what)),
        CtlCommand::Latency { mode } => post("latency", json!({ "mode": mode })),
        CtlCommand::Dedup { mode } => post("dedup", json!({ "mode": mode })),
        CtlCommand::Stats { .. } => post("reset", json!({})),
        CtlCommand::Ana { portal, state } => {
            post("ana", json!({ "portal": portal, "state": state }))
        }
        CtlCommand::Release { nsid } => post("release", json!({ "nsid": nsid })),
        CtlCommand::Snapshot { to } => {
            // Absolute, because the server has another working directory.
            let to = std::path::absolute(to).map_err(Failure::usage)?;
            post("snapshot", json!({ "to": to }))
        }
        CtlCommand::Log { level } => post("log", json!({ "level": level })),
    }
}

fn injected(what: &Inject) -> Value {
    match what {
        Inject::ReadError { nsid, lba, blocks } => {
            json!({ "what": "read-error", "nsid": nsid, "lba": lba, "blocks": blocks })
        }
        Inject::NvramFlip { word, bit } => {
            json!({ "what": "nvram-flip", "word": word, "bit": bit })
        }
        Inject::None => json!({ "what": "none" }),
    }
}

fn show(verb: &CtlCommand, value: &Value) -> Result<(), Failure> {
    let columns: &[&str] = match verb {
        CtlCommand::Hosts => &[
            "hostnqn",
            "connection",
            "peer",
            "controller",
            "queue",
            "rights",
            "denied",
            "seconds",
            "commands",
        ],
        CtlCommand::Namespaces => &[
            "nsid",
            "block_bytes",
            "blocks",
            "size_bytes",
            "attached_to",
            "reservation",
        ],
        CtlCommand::Config => return output::json(value),
        _ => {
            let rows = value.as_object().into_iter().flatten();
            // Values with parts, such as a recovery report, are only in the output of `--json`.
            let rows = rows.filter(|(_, value)| !value.is_object());
            let rows: Vec<_> = rows
                .map(|(name, value)| (label(name), text(name, value)))
                .collect();
            return output::text(&pairs(&rows));
        }
    };

    let cell = |one: &Value, column: &str| match &one[column] {
        // Only the type of a reservation; `--json` also has its holder.
        Value::Object(parts) => text(column, parts.get("type").unwrap_or(&Value::Null)),
        value => text(column, value),
    };
    let row = |one: &Value| columns.iter().map(|column| cell(one, column)).collect();
    let rows: Vec<Vec<String>> = value.as_array().into_iter().flatten().map(row).collect();
    let head: Vec<String> = columns.iter().map(|column| label(column)).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    output::text(&table(&head, &rows))
}

/// A field's name in words, without its unit, which is beside the value.
fn label(name: &str) -> String {
    let units = ["_bytes", "_seconds"];
    let words = units.iter().find_map(|unit| name.strip_suffix(unit));
    words.unwrap_or(name).replace('_', " ")
}

/// Formats a value with its unit. Hosts choose their names, so unprintable characters are escaped.
fn text(name: &str, value: &Value) -> String {
    let is_unit = |unit| name == unit || name.ends_with(&format!("_{unit}"));
    match value {
        Value::String(text) => remap_ssd_nvme::Escaped::text(text).to_string(),
        Value::Number(number) => match (number.as_u64(), number.as_f64().unwrap_or(0.0)) {
            (_, value) if is_unit("seconds") => seconds(value),
            (Some(count), _) if is_unit("bytes") => bytes(count),
            // Identifiers, not counts.
            (Some(number), _) if ["connection", "controller", "queue", "nsid"].contains(&name) => {
                number.to_string()
            }
            (Some(count), _) => exact(count),
            (None, value) => format!("{value:.3}"),
        },
        Value::Null => "none".into(),
        other => other.to_string(),
    }
}
