//! `io`: sends one command to a served device, for scripts and for trying things out.
//!
//! LBAs are in units of 4096 bytes, regardless of the namespace's block size.

use crate::failure::Failure;
use crate::output::{self, counted, pairs};
use crate::place::{self, HostArgs};
use remap_ssd_nvme::Escaped;
use remap_ssd_nvme::spec::command::RemapResult;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use remap_ssd_sim::report::format::{bytes, exact};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Sends one command to a device that `serve` serves.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address of the server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4420")]
    pub connect: String,
    /// The subsystem, and the identity there.
    #[command(flatten)]
    pub host: HostArgs,
    /// Number of the namespace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nsid: u32,
    /// Use header and data digests.
    #[arg(long)]
    pub digests: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples, LBAs of 4096 bytes:
  remap-ssd io --connect 127.0.0.1:4420 id
  remap-ssd io --connect 127.0.0.1:4420 write --lba 0 --file data.bin
  remap-ssd io --connect 127.0.0.1:4420 copy --from 0 --to 1000 --blocks 256
  remap-ssd io --connect 127.0.0.1:4420 remap --from 0 --to 2000 --blocks 16 --relocate
  remap-ssd io --connect 127.0.0.1:4420 read --lba 1000 --blocks 256 --file back.bin
  remap-ssd io --connect 127.0.0.1:4420 stat --json
  remap-ssd io --connect 192.168.1.2:4420 --hostnqn nqn.2026-11.com.example:db1 --secret db1.secret id";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows the device's identity, size and limits.
    Id {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Reads blocks to a file, or to standard output (`-`).
    Read {
        /// First block.
        #[arg(long)]
        lba: u64,
        /// Number of blocks.
        #[arg(long, default_value_t = 1)]
        blocks: u64,
        /// File to read into.
        #[arg(long, default_value = "-")]
        file: PathBuf,
    },
    /// Writes a file, or standard input (`-`), padded with zeroes to whole blocks.
    Write {
        /// First block.
        #[arg(long)]
        lba: u64,
        /// File to write.
        #[arg(long)]
        file: PathBuf,
        /// Durable on completion (FUA), without a flush.
        #[arg(long)]
        fua: bool,
    },
    /// Copies blocks with standard Copy commands, as many as the device's limit requires; no flash
    /// page is programmed.
    Copy(Ranges),
    /// Remaps blocks with the vendor command, to copy or to relocate them, and prints how many pages
    /// were copied instead.
    Remap {
        #[command(flatten)]
        ranges: Ranges,
        /// Deallocate the sources.
        #[arg(long)]
        relocate: bool,
        /// All blocks or none survive a power cut.
        #[arg(long)]
        atomic: bool,
    },
    /// Deallocates blocks: they read as zeroes.
    Trim {
        /// First block.
        #[arg(long)]
        lba: u64,
        /// Number of blocks.
        #[arg(long, default_value_t = 1)]
        blocks: u64,
    },
    /// Makes everything acknowledged so far durable: it survives a crash of the server's machine.
    Flush,
    /// Shows the firmware's statistics and SMART.
    Stat {
        /// Print as JSON, with the names of `compare --json`.
        #[arg(long)]
        json: bool,
    },
}

/// Source and target blocks of a copy or a remap.
#[derive(Debug, clap::Args)]
struct Ranges {
    /// First source block.
    #[arg(long)]
    from: u64,
    /// First target block.
    #[arg(long)]
    to: u64,
    /// Number of blocks.
    #[arg(long, default_value_t = 1)]
    blocks: u64,
}

/// Runs `io`.
///
/// # Errors
/// The server cannot be reached, or the device refused.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let options = Options {
        nsid: args.nsid,
        digests: args.digests,
        ..args.host.options()?
    };
    let about = |error: ClientError| Failure::about(&args.connect, error);
    let mut client = Client::connect(args.connect.as_str(), options).map_err(about)?;

    // Converts blocks of 4096 bytes to the namespace's blocks.
    let unit = 4096u64 >> client.lba_shift();
    let scaled = |block: u64| {
        block
            .checked_mul(unit)
            .ok_or_else(|| Failure::usage("such a block there cannot be"))
    };

    match &args.command {
        Command::Id { json } => identify(&mut client, *json),
        Command::Read { lba, blocks, file } => {
            let data = client
                .read(scaled(*lba)?, scaled(*blocks)?)
                .map_err(about)?;
            write_to(file, &data)
        }
        Command::Write { lba, file, fua } => {
            let (first, data) = (scaled(*lba)?, read_from(file)?);
            let written = if *fua {
                client.write_through(first, &data)
            } else {
                client.write(first, &data)
            };
            written.map_err(about)
        }
        Command::Copy(Ranges { from, to, blocks }) => client
            .copy(scaled(*from)?, scaled(*to)?, scaled(*blocks)?)
            .map_err(about),
        Command::Remap {
            ranges: Ranges { from, to, blocks },
            relocate,
            atomic,
        } => {
            // The command has a 28-bit block count.
            let count = u32::try_from(scaled(*blocks)?).ok();
            let count = count.filter(|count| (1..1 << 28).contains(count));
            let count =
                count.ok_or_else(|| Failure::usage("one command remaps 1 to 2^28 - 1 blocks"))?;
            let result = client
                .remap(scaled(*from)?, scaled(*to)?, count, *relocate, *atomic)
                .map_err(about)?;
            output::text(&copied(result))
        }
        Command::Trim { lba, blocks } => {
            client.trim(scaled(*lba)?, scaled(*blocks)?).map_err(about)
        }
        Command::Flush => client.flush().map_err(about),
        Command::Stat { json } => {
            let values = client.statistics().map_err(about)?;

            let smart = client.smart().map_err(about)?;
            statistics(&values, &smart, *json)
        }
    }
}

/// Pages that a remap copied instead, in one line.
fn copied(result: RemapResult) -> String {
    let causes = [
        (result.counter_full(), "reference counter full"),
        (result.metadata_full(), "remapping metadata full"),
        (result.otherwise(), "not remapped by this scheme"),
    ];
    let causes: Vec<&str> = causes
        .into_iter()
        .filter_map(|(is_one, cause)| is_one.then_some(cause))
        .collect();

    let pages = counted(result.copied().into(), "page");
    match &causes[..] {
        [] => format!("{pages} copied instead\n"),
        causes => format!("{pages} copied instead: {}\n", causes.join(", ")),
    }
}

fn identify(client: &mut Client, as_json: bool) -> Result<(), Failure> {
    let namespaces = client.namespaces().map_err(Failure::failed)?.len() as u64;
    let (controller, namespace) = (client.controller(), client.namespace());
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim().to_owned();
    let (blocks, block_bytes) = (namespace.nsze, 1u64 << client.lba_shift());
    let (size, copy_blocks) = (blocks * block_bytes, namespace.mcl);
    // Bit 0 of VWC: a volatile write cache is present (Identify Controller).
    let is_volatile = controller.vwc & 1 == 1;

    if as_json {
        return output::json(&json!({
            "nqn": client.subnqn(), "model": text(&controller.mn), "serial": text(&controller.sn),
            "firmware": text(&controller.fr), "namespaces": namespaces, "block_bytes": block_bytes,
            "blocks": blocks, "size_bytes": size, "copy_blocks_max": copy_blocks,
            "volatile_write_cache": is_volatile,
        }));
    }

    // The server's strings may contain anything: a terminal must not interpret them.
    let shown = |field: &[u8]| Escaped::text(&text(field)).to_string();
    let (model, firmware) = (shown(&controller.mn), shown(&controller.fr));
    let cache = if is_volatile {
        "volatile: flush to keep"
    } else {
        "none"
    };
    output::text(&pairs(&[
        ("name", Escaped::name(client.subnqn()).to_string()),
        ("model", format!("{model}, firmware {firmware}")),
        ("serial number", shown(&controller.sn)),
        ("namespaces", exact(namespaces)),
        (
            "size",
            format!("{} in blocks of {block_bytes} bytes", bytes(size)),
        ),
        (
            "one Copy",
            format!("at most {} blocks", exact(copy_blocks.into())),
        ),
        ("write cache", cache.into()),
    ]))
}

fn statistics(
    values: &[(&'static str, u64)],
    smart: &remap_ssd_nvme::spec::log::Smart,
    as_json: bool,
) -> Result<(), Failure> {
    let value = |name: &str| {
        values
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, value)| *value)
    };

    // Why remaps became copies: of most interest to an operator.
    let demotions = ["counter_full", "nvram_full", "watermark"]
        .map(|cause| (cause, value(&format!("demoted_{cause}"))));

    let (host, flash) = (value("host_pages"), value("flash_pages"));
    // A device that was never written has 0/0, which JSON cannot represent.
    let amplification = if host == 0 {
        0.0
    } else {
        flash as f64 / host as f64
    };

    // SMART counters have 128 bits; no device lives long enough to need more than 64.
    let smart = [
        ("power_cycles", smart.power_cycles as u64),
        ("unsafe_shutdowns", smart.unsafe_shutdowns as u64),
        ("data_units_read", smart.data_units_read as u64),
        ("data_units_written", smart.data_units_written as u64),
        ("percentage_used", smart.percentage_used.into()),
        ("available_spare", smart.available_spare.into()),
        ("media_errors", smart.media_errors as u64),
    ];

    if as_json {
        let map = |pairs: &[(&str, u64)]| -> Map<String, Value> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect()
        };
        let mut all = map(values);
        all.insert("write_amplification".into(), json!(amplification));
        all.insert("demotions".into(), map(&demotions).into());
        all.insert("smart".into(), map(&smart).into());
        return output::json(&all.into());
    }

    let rows = values
        .iter()
        .chain(&smart)
        .map(|(name, value)| (name.replace('_', " "), exact(*value)));
    let rows = rows.chain([(
        "write amplification".to_owned(),
        format!("{amplification:.2}"),
    )]);

    output::text(&pairs(&rows.collect::<Vec<_>>()))
}

fn read_from(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut data = place::read(path)?;
    if data.is_empty() {
        return Err(Failure::about(
            path.display(),
            "there is nothing in it to write",
        ));
    }

    // Padded with zeroes: the device accepts only whole pages.
    data.resize(data.len().next_multiple_of(4096), 0);
    Ok(data)
}

fn write_to(path: &Path, data: &[u8]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        return Ok(out.write_all(data).and_then(|()| out.flush())?);
    }
    std::fs::write(path, data).map_err(|error| Failure::about(path.display(), error))
}
