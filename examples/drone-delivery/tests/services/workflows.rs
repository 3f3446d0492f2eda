//! The workflow files of this example against the real services.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drone_delivery::chaos::Faults;
use drone_delivery::services::account::AccountService;
use drone_delivery::services::package::PackageService;
use drone_delivery::services::third_party::ThirdPartyService;
use highwater_env::RealClock;
use highwater_log::{Log, MemoryLog};
use highwater_workflow::call::Functions;
use highwater_workflow::{Definition, Handle, Options, Service, Supervision};
use serde_json::{Value, json};

use crate::backends::{delivery_service, drone_service};
use crate::support::*;

/// The back ends, in the order of their ports.
struct Backends {
    account: Running,
    package: Running,
    third_party: Running,
    drone: Running,
    delivery: Running,
}

impl Backends {
    async fn start(data: &Path) -> Backends {
        let account = AccountService {
            store: store(&data.join("account")).await,
        };
        let package = PackageService {
            store: store(&data.join("package")).await,
        };
        let third_party = ThirdPartyService {
            store: store(&data.join("third-party")).await,
            range_km: 100.0,
        };
        let drone = drone_service(&data.join("drone"), 100).await;
        let delivery = delivery_service(&data.join("delivery")).await;
        let mut backends = Backends {
            account: run(account, Faults::default()).await,
            package: run(package, Faults::default()).await,
            third_party: run(third_party, Faults::default()).await,
            drone: run(drone, Faults::default()).await,
            delivery: run(delivery, Faults::default()).await,
        };
        for (owner, active) in [("ann", true), ("bob", false)] {
            let register = format!("PUT /api/accounts/{owner}");
            backends
                .account
                .ask(&register, json!({"active": active}))
                .await;
        }
        backends
    }

    /// A workflow of this folder, with the addresses of these services.
    async fn workflow(&self, name: &str) -> Workflow {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workflows/{name}.toml"));
        let mut text = highwater_env::disk::read_to_string(path).unwrap();
        let all = [
            &self.account,
            &self.package,
            &self.third_party,
            &self.drone,
            &self.delivery,
        ];
        for (port, service) in (7401..).zip(all) {
            text = text.replace(&format!("127.0.0.1:{port}"), &service.address);
        }
        let definition =
            Definition::from_toml(name, &text).unwrap_or_else(|error| panic!("{error}"));
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 1_700_000_000_000));
        let clock = Arc::new(RealClock::new());
        let (functions, options) = (Functions::new(), Options::default());
        let service = Service::open(
            &log,
            clock,
            definition,
            functions,
            options,
            Supervision::Here,
        );
        let service = service.await.unwrap();
        Workflow {
            handle: service.handle(),
            task: tokio::spawn(async move { service.run(std::future::pending()).await.unwrap() }),
        }
    }

    /// The statuses of a delivery at the package, drone and delivery services.
    async fn held(&mut self, id: &str) -> [u16; 3] {
        [
            self.package
                .status(&format!("GET /api/packages/p-{id}"), Value::Null)
                .await,
            self.drone
                .status(&format!("GET /api/dronedeliveries/{id}"), Value::Null)
                .await,
            self.delivery
                .status(&format!("GET /api/deliveries/{id}"), Value::Null)
                .await,
        ]
    }
}

struct Workflow {
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Workflow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Workflow {
    /// How it ends, and why.
    async fn run(&self, id: &str, input: Value) -> (String, String) {
        self.handle
            .start(id, input.to_string().as_bytes())
            .await
            .unwrap();
        let ended = async {
            loop {
                let view = self.handle.show(id).await.unwrap();
                if let Some(view) =
                    view.filter(|view| !["running", "failing", "undoing"].contains(&&*view.state))
                {
                    return (view.state, view.reason.unwrap_or_default());
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended)
            .await
            .unwrap()
    }
}

fn request(id: &str, owner: &str, dropoff: &str) -> Value {
    json!({
        "deliveryId": id, "ownerId": owner, "pickupLocation": "here", "dropoffLocation": dropoff,
        "pickupTime": "", "deadline": "", "expedited": true, "confirmationRequired": "None",
        "packageInfo": {"packageId": format!("p-{id}"), "size": "Small", "weight": 1.5, "tag": "t"},
    })
}

// proves D2
#[tokio::test]
async fn five_steps_make_a_delivery_and_a_second_run_changes_nothing() {
    let folder = folder();
    let mut backends = Backends::start(folder.path()).await;
    let first = backends.workflow("delivery").await;
    let (state, reason) = first.run("d1", request("d1", "ann", "there")).await;
    assert_eq!((&*state, &*reason), ("completed", ""));
    assert_eq!(backends.held("d1").await, [200, 200, 200]);
    let (_, drone) = backends
        .drone
        .ask("GET /api/dronedeliveries/d1", Value::Null)
        .await;
    let (_, delivery) = backends
        .delivery
        .ask("GET /api/deliveries/d1", Value::Null)
        .await;
    assert_eq!(drone["droneId"], delivery["droneId"]);
    assert_eq!(
        (&drone["expedited"], &drone["packages"]),
        (&json!(true), &json!(["p-d1"]))
    );
    assert_eq!(
        delivery["owner"],
        json!({"userId": "ann", "accountId": "ann"})
    );
    assert_eq!(delivery["expedited"], true);

    // A scheduler without its journal repeats every step: 204 counts like 201.
    let second = backends.workflow("delivery").await;
    let (state, _) = second.run("d1", request("d1", "ann", "there")).await;
    assert_eq!(state, "completed");
    let (_, again) = backends
        .delivery
        .ask("GET /api/deliveries/d1", Value::Null)
        .await;
    assert_eq!(
        again, delivery,
        "the same drone, the same owner, the same places"
    );
}

// proves D3
#[tokio::test]
async fn who_is_not_to_get_a_drone_leaves_nothing_behind() {
    let folder = folder();
    let mut backends = Backends::start(folder.path()).await;
    let workflow = backends.workflow("delivery").await;
    let suspended = workflow.run("d1", request("d1", "bob", "there")).await;
    assert_eq!(
        suspended,
        ("refused".into(), "the account is suspended".into())
    );
    let unknown = workflow.run("d2", request("d2", "eve", "there")).await;
    assert_eq!(unknown.0, "refused");
    let far = workflow.run("d3", request("d3", "ann", "48.85,2.35")).await;
    assert_eq!(
        far,
        (
            "refused".into(),
            "the place is out of reach for a drone".into()
        )
    );
    for id in ["d1", "d2", "d3"] {
        assert_eq!(backends.held(id).await, [404, 404, 404], "{id}");
    }
}

// proves D3
#[tokio::test]
async fn two_requests_for_one_parcel_get_one_drone() {
    let folder = folder();
    let mut backends = Backends::start(folder.path()).await;
    let workflow = backends.workflow("delivery").await;
    assert_eq!(
        workflow.run("d1", request("d1", "ann", "there")).await.0,
        "completed"
    );
    let mut same = request("d2", "ann", "there");
    same["packageInfo"]["packageId"] = json!("p-d1");
    assert_eq!(workflow.run("d2", same).await.0, "refused");
    assert_eq!(backends.held("d1").await, [200, 200, 200]);
    assert_eq!(backends.held("d2").await, [404, 404, 404]);
}

// proves D3
#[tokio::test]
async fn a_cancellation_undoes_a_delivery_and_stops_one_that_comes_later() {
    let folder = folder();
    let mut backends = Backends::start(folder.path()).await;
    let delivery = backends.workflow("delivery").await;
    let cancel = backends.workflow("cancel").await;
    assert_eq!(
        delivery.run("d1", request("d1", "ann", "there")).await.0,
        "completed"
    );
    for id in ["d1", "d2"] {
        let (state, reason) = cancel.run(id, json!({"deliveryId": id})).await;
        assert_eq!((&*state, &*reason), ("completed", ""));
    }
    assert_eq!(
        delivery.run("d2", request("d2", "ann", "there")).await.0,
        "refused"
    );
    assert_eq!(backends.held("d1").await, [404, 404, 404]);
    assert_eq!(backends.held("d2").await, [404, 404, 404]);
}

#[tokio::test]
async fn a_reschedule_changes_the_delivery_that_is_there() {
    let folder = folder();
    let mut backends = Backends::start(folder.path()).await;
    let delivery = backends.workflow("delivery").await;
    let reschedule = backends.workflow("reschedule").await;
    delivery.run("d1", request("d1", "ann", "there")).await;
    let wanted = json!({
        "requestId": "r1", "deliveryId": "d1", "pickupLocation": null,
        "dropoffLocation": "47.7,-122.3", "deadline": null, "pickupTime": null,
    });
    let (state, reason) = reschedule.run("r1", wanted).await;
    assert_eq!((&*state, &*reason), ("completed", ""));
    let (_, changed) = backends
        .delivery
        .ask("GET /api/deliveries/d1", Value::Null)
        .await;
    assert_eq!(
        (&changed["dropoff"]["latitude"], &changed["deadline"]),
        (&json!(47.7), &json!(""))
    );
}
