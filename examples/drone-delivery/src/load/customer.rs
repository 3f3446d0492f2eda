//! The requests of a load: mostly valid ones, and some of every kind that must not get a drone.

use std::io::Write;

use highwater_env::random::Random;

/// One request in this many is of this kind; 0 means none.
#[derive(Clone, Debug, clap::Args)]
pub struct Mix {
    /// From a customer whose account is suspended
    #[arg(long, default_value_t = 50)]
    pub suspended: u64,
    /// To a destination out of the drones' range
    #[arg(long, default_value_t = 50)]
    pub far: u64,
    /// For a parcel that another request has already named
    #[arg(long, default_value_t = 100)]
    pub same_parcel: u64,
    /// Cancelled as soon as it was accepted
    #[arg(long, default_value_t = 50)]
    pub cancelled: u64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            suspended: 50,
            far: 50,
            same_parcel: 100,
            cancelled: 50,
        }
    }
}

pub struct Customers {
    name: String,
    host: String,
    mix: Mix,
    /// Buffer for the body, whose length precedes it.
    body: Vec<u8>,
}

/// Number of customers. The last one is suspended.
pub(super) const OWNERS: u64 = 100;

impl Customers {
    /// Customers of `host`.
    pub fn new(name: &str, host: &str, mix: Mix) -> Customers {
        Customers {
            name: name.to_owned(),
            host: host.to_owned(),
            mix,
            body: Vec::new(),
        }
    }

    /// All customers, and whether their account is active.
    pub fn accounts(name: &str) -> impl Iterator<Item = (String, bool)> {
        (0..OWNERS).map(move |number| (format!("{name}-owner-{number}"), number < OWNERS - 1))
    }

    fn falls(&self, number: u64, kind: u64, one_in: u64) -> bool {
        // Kinds must not coincide, so each has its own random sequence.
        let draw = || Random::seeded(number.wrapping_mul(31).wrapping_add(kind)).below(one_in);
        one_in > 0 && draw() == 0
    }

    pub fn changes_mind(&self, number: u64) -> bool {
        self.falls(number, 1, self.mix.cancelled)
    }

    /// The request as bytes.
    pub fn request(&mut self, number: u64, out: &mut Vec<u8>) {
        self.body.clear();
        let mut body = std::mem::take(&mut self.body);
        self.write_body(number, &mut body);
        let Customers { name, host, .. } = self;
        write(
            out,
            format_args!(
                "POST /api/deliveryrequests HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
                 idempotency-key: {name}-{number}\r\ncontent-length: {}\r\n\r\n",
                body.len(),
            ),
        );
        out.extend_from_slice(&body);
        self.body = body;
    }

    fn write_body(&self, number: u64, out: &mut Vec<u8>) {
        let Customers { name, mix, .. } = self;
        let owner = match self.falls(number, 2, mix.suspended) {
            true => OWNERS - 1,
            false => number % (OWNERS - 1),
        };
        write(
            out,
            format_args!(
                "{{\"ownerId\":\"{name}-owner-{owner}\",\"pickupLocation\":\"{} Market Street\",\"dropOffLocation\":\"",
                number % 1000,
            ),
        );
        match self.falls(number, 3, mix.far) {
            true => write(out, format_args!("48.85,2.35")),
            false => write(out, format_args!("{} Harbour Road", number % 5000)),
        }
        let parcel = match self.falls(number, 4, mix.same_parcel) {
            true => number.saturating_sub(1),
            false => number,
        };
        write(
            out,
            format_args!(
                "\",\"pickupTime\":\"2026-11-15T12:00:00Z\",\"deadline\":\"\",\"expedited\":{},\
                 \"confirmationRequired\":\"Picture\",\"packageInfo\":{{\"packageId\":\"{name}-p{parcel}\",\
                 \"size\":\"Medium\",\"weight\":{},\"tag\":\"{name}-owner-{owner}\"}}}}",
                number.is_multiple_of(7),
                1 + number % 20,
            ),
        );
    }

    pub fn cancellation(&self, id: &str, out: &mut Vec<u8>) {
        let host = &self.host;
        write(
            out,
            format_args!("DELETE /api/deliveryrequests/{id} HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        );
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingestion::DeliveryRequest;

    #[test]
    fn customers_send_what_the_public_api_takes_and_every_kind_of_it() {
        let mix = Mix {
            suspended: 10,
            far: 10,
            same_parcel: 10,
            cancelled: 10,
        };
        let mut customers = Customers::new("t", "h", mix);
        let (mut suspended, mut far, mut same, mut cancelled) = (0, 0, 0, 0);
        for number in 0..1000 {
            let mut request = Vec::new();
            customers.request(number, &mut request);
            let request = String::from_utf8(request).unwrap();
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let length = format!("content-length: {}", body.len());
            assert!(head.ends_with(&length), "{head}");
            let mut request: DeliveryRequest = serde_json::from_str(body).unwrap();
            request.delivery_id = "d".into();
            request.complete().unwrap();
            suspended += u32::from(request.owner_id == "t-owner-99");
            far += u32::from(request.drop_off_location.starts_with("48.85"));
            same += u32::from(request.package_info.package_id != format!("t-p{number}"));
            cancelled += u32::from(customers.changes_mind(number));
        }
        for count in [suspended, far, same, cancelled] {
            assert!((60..160).contains(&count), "{count}");
        }
        assert_eq!(
            Customers::accounts("t")
                .filter(|(_, active)| *active)
                .count(),
            99
        );
    }
}
