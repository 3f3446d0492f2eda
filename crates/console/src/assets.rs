//! Style and scripts, embedded in the program.

use std::sync::LazyLock;

/// A file that pages load.
#[derive(Clone, Debug)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    vec![
        Asset {
            name: "style.css",
            content_type: "text/css; charset=utf-8",
            bytes: include_bytes!("../assets/style.css").to_vec(),
        },
        Asset {
            name: "icon.svg",
            content_type: "image/svg+xml",
            bytes: include_bytes!("../assets/icon.svg").to_vec(),
        },
        script("theme.js", include_str!("../assets/theme.js")),
        script("shell.js", include_str!("../assets/shell.js")),
        script("picture.js", include_str!("../assets/picture.js")),
        script("job.js", include_str!("../assets/job.js")),
        script("messages.js", include_str!("../assets/messages.js")),
        script("bulk.js", include_str!("../assets/bulk.js")),
        script("playground.js", include_str!("../assets/playground.js")),
    ]
});

/// A script without indentation and lines of comment: browsers need neither.
fn script(name: &'static str, text: &str) -> Asset {
    let lines = text.lines().map(str::trim_start);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let mut bytes = Vec::with_capacity(text.len());
    for line in code {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    Asset {
        name,
        content_type: SCRIPT,
        bytes,
    }
}

pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Changes with the content of any asset: the ETag of all of them, and part of their addresses in pages.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let bytes = ASSETS.iter().flat_map(|asset| &asset.bytes);
        // FNV-1a: tells versions apart, protects nothing.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    });
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U2
    #[test]
    fn scripts_stay_below_their_limit_and_load_nothing_from_elsewhere() {
        // A page loads these and at most one script of its own.
        let is_common = |name: &str| matches!(name, "theme.js" | "shell.js" | "picture.js");
        let scripts = ASSETS.iter().filter(|asset| asset.content_type == SCRIPT);
        let (common, own): (Vec<_>, Vec<_>) = scripts.partition(|asset| is_common(asset.name));
        let largest = own.iter().map(|asset| asset.bytes.len()).max();
        let common: usize = common.iter().map(|asset| asset.bytes.len()).sum();
        let bytes = common + largest.unwrap_or(0);
        assert!(bytes < 60_000, "{bytes} bytes of script in a page");
        for asset in &*ASSETS {
            let text = String::from_utf8_lossy(&asset.bytes);
            let text = text.replace("http://www.w3.org/2000/svg", "");
            let elsewhere = text.contains("http://") || text.contains("https://");
            assert!(!elsewhere && !text.contains("@import"), "{}", asset.name);
        }
    }
}
