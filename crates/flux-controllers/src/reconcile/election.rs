//! Leader election: one Lease for each controller that runs, under upstream's names and taken in a fixed order, so
//! that this process and upstream's controllers never work at the same time, and two of ours never wait for each
//! other in a circle.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use flux_api::kinds::Controller;

use super::metrics::{LEADER, Metrics};

#[derive(Clone, Debug)]
pub struct ElectionOptions {
    /// Where the Leases are.
    pub namespace: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    /// Give the Leases back at the end, so that the next one need not wait.
    pub release_on_cancel: bool,
}

/// `<controller>-leader-election`, and for a shard the beginning of its selector's digest.
pub fn lease_name(controller: Controller, selector: Option<&str>) -> String {
    let name = format!("{controller}-leader-election");
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return name;
    };
    let digest = Sha256::digest(selector.as_bytes());
    format!("{name}-{}", digest[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// The Leases, held and renewed until they are released or one is lost.
pub struct Leadership {
    lost: CancellationToken,
    ended: CancellationToken,
    renewals: JoinSet<()>,
}

impl Leadership {
    /// Waits for all of `names`, one after another.
    pub async fn win(
        client: &Client,
        names: Vec<String>,
        options: &ElectionOptions,
        metrics: &Metrics,
    ) -> Self {
        let identity = identity();
        for name in &names {
            metrics.set(&LEADER, &[name], 0.0);
        }
        let mut won = Self {
            lost: CancellationToken::new(),
            ended: CancellationToken::new(),
            renewals: JoinSet::new(),
        };
        for name in names {
            let mut candidate = Candidate {
                api: Api::namespaced(client.clone(), &options.namespace),
                name: name.clone(),
                identity: identity.clone(),
                options: options.clone(),
                observed: None,
            };
            tracing::info!(
                lease = format!("{}/{name}", options.namespace),
                "attempting to acquire leader lease"
            );
            candidate.win().await;
            tracing::info!(lease = format!("{}/{name}", options.namespace), "successfully acquired lease");
            metrics.set(&LEADER, &[&name], 1.0);
            let (lost, ended) = (won.lost.clone(), won.ended.clone());
            won.renewals.spawn(candidate.hold(lost, ended));
        }
        won
    }

    /// Ends when a Lease could not be kept.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Stops renewing and, where asked to, gives the Leases back.
    pub async fn release(mut self) {
        self.ended.cancel();
        while self.renewals.join_next().await.is_some() {}
    }
}

/// Who we are: the Pod, and which of its lives.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "flux".to_owned());
    format!("{host}_{}", uuid::Uuid::new_v4())
}

struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    options: ElectionOptions,
    /// The last record seen and when; clocks of different machines are not compared.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    async fn win(&mut self) {
        loop {
            match self.try_to_hold().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::error!(%error, lease = self.name, "error retrieving resource lock"),
            }
            tokio::time::sleep(super::jittered(self.options.retry_period, 20)).await;
        }
    }

    async fn hold(mut self, lost: CancellationToken, ended: CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = ended.cancelled() => break,
                () = tokio::time::sleep(self.options.retry_period) => {}
            }
            let left = self.options.renew_deadline.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left.max(Duration::from_millis(1)), self.try_to_hold()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::error!(lease = self.name, "leader election lost");
                    return lost.cancel();
                }
                Ok(Err(error)) => tracing::error!(%error, lease = self.name, "failed to renew lease"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.options.renew_deadline {
                tracing::error!(lease = self.name, "leader election lost");
                return lost.cancel();
            }
        }
        if self.options.release_on_cancel {
            self.give_back().await;
        }
    }

    /// Takes or renews the Lease; `false` when somebody else has it.
    async fn try_to_hold(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.record(None)),
            };
            return settled(self.api.create(&PostParams::default(), &lease).await);
        };
        let current = lease.spec.clone().unwrap_or_default();
        if !self.may_take(&current, Instant::now()) {
            return Ok(false);
        }
        lease.spec = Some(self.record(Some(&current)));
        settled(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    /// Ours, nobody's, or not renewed for as long as its holder promised.
    fn may_take(&mut self, current: &LeaseSpec, now: Instant) -> bool {
        let holder = current.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        let seen = match &self.observed {
            Some((record, seen)) if record == current => *seen,
            _ => {
                self.observed = Some((current.clone(), now));
                now
            }
        };
        let promised = current.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let promised = promised.map_or(self.options.lease_duration, Duration::from_secs);
        now.duration_since(seen) >= promised
    }

    fn record(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = before.filter(|before| before.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.options.lease_duration.as_secs()).unwrap_or(i32::MAX).max(1),
            ),
            acquire_time: ours.and_then(|ours| ours.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (before, ours) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..LeaseSpec::default()
        }
    }

    async fn give_back(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        if let Err(error) = self.api.replace(&self.name, &PostParams::default(), &lease).await {
            tracing::error!(%error, lease = self.name, "failed to release lease");
        }
    }
}

/// Somebody who was quicker is no error.
fn settled(answer: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_upstreams_names() {
        assert_eq!(lease_name(Controller::Source, None), "source-controller-leader-election");
        // The digest that upstream's GenerateID makes of the selector.
        let digest = Sha256::digest(b"sharding.fluxcd.io/shard=shard1");
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            lease_name(Controller::Kustomize, Some("sharding.fluxcd.io/shard=shard1")),
            format!("kustomize-controller-leader-election-{}", &hex[..8])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_over_only_when_its_holder_stopped_renewing() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, std::io::Error>(std::io::Error::other("not asked"))
        });
        let client = Client::new(service, "default");
        let options = ElectionOptions {
            namespace: "flux-system".to_owned(),
            lease_duration: Duration::from_secs(35),
            renew_deadline: Duration::from_secs(30),
            retry_period: Duration::from_secs(5),
            release_on_cancel: true,
        };
        let mut candidate = Candidate {
            api: Api::namespaced(client, "flux-system"),
            name: "lease".to_owned(),
            identity: "us".to_owned(),
            options,
            observed: None,
        };
        let mut other = LeaseSpec {
            holder_identity: Some("them".to_owned()),
            lease_duration_seconds: Some(35),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        };
        let start = Instant::now();
        assert!(!candidate.may_take(&other, start), "an old time of another clock means nothing");
        assert!(!candidate.may_take(&other, start + Duration::from_secs(34)));
        other.renew_time = Some(MicroTime(Timestamp::from_second(1).unwrap()));
        assert!(!candidate.may_take(&other, start + Duration::from_secs(36)), "it was renewed");
        assert!(candidate.may_take(&other, start + Duration::from_secs(80)));
        other.holder_identity = Some(String::new());
        assert!(candidate.may_take(&other, start), "it was given back");
    }
}
