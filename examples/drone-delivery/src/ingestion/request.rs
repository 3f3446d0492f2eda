//! Customer requests, validated and completed before they go on the hub.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::{Confirmation, Size, is_id};

/// A request as sent and echoed. Absent fields are filled in, so that readers find every field. Strings borrow from the
/// request body.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryRequest<'a> {
    /// Set by the server; the caller's value is ignored.
    #[serde(skip_deserializing)]
    pub delivery_id: String,
    #[serde(default, borrow)]
    pub owner_id: Cow<'a, str>,
    #[serde(default, borrow)]
    pub pickup_location: Cow<'a, str>,
    #[serde(default, borrow, alias = "dropoffLocation")]
    pub drop_off_location: Cow<'a, str>,
    #[serde(default, borrow)]
    pub pickup_time: Cow<'a, str>,
    #[serde(default, borrow)]
    pub deadline: Cow<'a, str>,
    #[serde(default)]
    pub expedited: bool,
    #[serde(default)]
    pub confirmation_required: Confirmation,
    #[serde(default, borrow)]
    pub package_info: PackageInfo<'a>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageInfo<'a> {
    #[serde(borrow)]
    pub package_id: Cow<'a, str>,
    pub size: Size,
    pub weight: f64,
    #[serde(borrow)]
    pub tag: Cow<'a, str>,
}

impl DeliveryRequest<'_> {
    /// Validates the request; a parcel without an id gets that of its delivery.
    pub fn complete(&mut self) -> Result<(), String> {
        if self.package_info.package_id.is_empty() {
            self.package_info.package_id = self.delivery_id.clone().into();
        }
        for (name, id) in [
            ("ownerId", &self.owner_id),
            ("packageInfo.packageId", &self.package_info.package_id),
        ] {
            if !is_id(id) {
                return Err(format!(
                    "{name} must have 1 to 128 letters, digits, `-`, `.`, `_` or `~`"
                ));
            }
        }
        for (name, text) in [
            ("pickupLocation", &self.pickup_location),
            ("dropOffLocation", &self.drop_off_location),
        ] {
            if text.trim().is_empty() {
                return Err(format!("{name} is missing"));
            }
        }
        let time = &self.pickup_time;
        if !time.is_empty() && time.parse::<jiff::Timestamp>().is_err() {
            return Err(format!(
                "pickupTime `{time}` is not a time such as 2026-11-15T12:00:00Z"
            ));
        }
        match self.package_info.weight {
            weight if weight.is_finite() && weight >= 0.0 => Ok(()),
            weight => Err(format!("packageInfo.weight cannot be {weight}")),
        }
    }

    /// The form for the hub, which differs in the name of one field.
    pub fn queued(&self) -> QueuedRequest<'_> {
        QueuedRequest {
            delivery_id: &self.delivery_id,
            owner_id: &self.owner_id,
            pickup_location: &self.pickup_location,
            dropoff_location: &self.drop_off_location,
            pickup_time: &self.pickup_time,
            deadline: &self.deadline,
            expedited: self.expedited,
            confirmation_required: self.confirmation_required,
            package_info: &self.package_info,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedRequest<'a> {
    delivery_id: &'a str,
    owner_id: &'a str,
    pickup_location: &'a str,
    dropoff_location: &'a str,
    pickup_time: &'a str,
    deadline: &'a str,
    expedited: bool,
    confirmation_required: Confirmation,
    package_info: &'a PackageInfo<'a>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reschedule {
    pickup_location: Option<String>,
    #[serde(alias = "dropoffLocation")]
    drop_off_location: Option<String>,
    deadline: Option<String>,
    pickup_time: Option<String>,
}

impl Reschedule {
    /// Absent fields are null, which changes nothing.
    pub fn queued(&self, request_id: &str, delivery_id: &str) -> Value {
        json!({
            "requestId": request_id, "deliveryId": delivery_id,
            "pickupLocation": self.pickup_location, "dropoffLocation": self.drop_off_location,
            "deadline": self.deadline, "pickupTime": self.pickup_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form on the hub.
    fn queued(change: impl FnOnce(&mut Value)) -> Result<Value, String> {
        let mut value = json!({
            "deliveryId": "mine", "ownerId": "owner-1", "pickupLocation": "here",
            "dropOffLocation": "there", "pickupTime": "2026-11-15T12:00:00Z", "expedited": true,
            "confirmationRequired": "Picture",
            "packageInfo": {"packageId": "p-1", "size": "medium", "weight": 3, "tag": "t"},
        });
        change(&mut value);
        let text = value.to_string();
        let mut request: DeliveryRequest<'_> =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        request.delivery_id = "d-1".into();
        request.complete()?;
        Ok(serde_json::to_value(request.queued()).unwrap())
    }

    #[test]
    fn what_is_queued_has_every_field_and_the_id_of_the_server() {
        let queued = queued(|value| {
            value.as_object_mut().unwrap().remove("packageInfo");
            value
                .as_object_mut()
                .unwrap()
                .remove("confirmationRequired");
        });
        let expected = json!({
            "deliveryId": "d-1", "ownerId": "owner-1", "pickupLocation": "here",
            "dropoffLocation": "there", "pickupTime": "2026-11-15T12:00:00Z", "deadline": "",
            "expedited": true, "confirmationRequired": "FingerPrint",
            "packageInfo": {"packageId": "d-1", "size": "Small", "weight": 0.0, "tag": ""},
        });
        assert_eq!(queued.unwrap(), expected);
    }

    #[test]
    fn a_request_that_cannot_be_done_is_refused_with_the_reason() {
        for (change, reason) in [
            (("ownerId", Value::Null), "invalid type: null"),
            (("ownerId", json!("")), "ownerId must have"),
            (("ownerId", json!("a/b")), "ownerId must have"),
            (
                ("dropOffLocation", json!(" ")),
                "dropOffLocation is missing",
            ),
            (("pickupTime", json!("tomorrow")), "pickupTime `tomorrow`"),
            (
                ("packageInfo", json!({"weight": -1})),
                "weight cannot be -1",
            ),
            (
                ("packageInfo", json!({"size": "huge"})),
                "Small, Medium, Large",
            ),
        ] {
            let (field, value) = change;
            let refused = queued(|request| request[field] = value).unwrap_err();
            assert!(refused.contains(reason), "{field}: {refused}");
        }
    }
}
