//! Why a condition has its status: every reason Flux writes, word for word. One list for all controllers, since several share most of it.

crate::closed_set::closed_set! {
    /// The reason of a condition or an event.
    pub enum Reason {
        /// It worked.
        Succeeded = "Succeeded",
        /// It did not.
        Failed = "Failed",
        /// It did not; what the image controllers say.
        Failure = "Failure",
        /// Work is under way.
        Progressing = "Progressing",
        /// Work is under way after a failure.
        ProgressingWithRetry = "ProgressingWithRetry",
        /// Suspended by its spec.
        Suspended = "Suspended",
        /// Something it depends on is not ready.
        DependencyNotReady = "DependencyNotReady",
        /// A path is not valid.
        InvalidPath = "InvalidPath",
        /// An address is not valid; older spelling.
        InvalidUrl = "InvalidURL",
        /// Connections without TLS are not allowed.
        InsecureConnectionsDisallowed = "InsecureConnectionsDisallowed",
        /// The kind of connection is not supported.
        UnsupportedConnectionType = "UnsupportedConnectionType",
        /// Objects that left the source could not be deleted.
        PruneFailed = "PruneFailed",
        /// The artifact could not be had.
        ArtifactFailed = "ArtifactFailed",
        /// The manifests could not be built.
        BuildFailed = "BuildFailed",
        /// Applied objects are not healthy.
        HealthCheckFailed = "HealthCheckFailed",
        /// A newer revision came while waiting for health.
        HealthCheckCanceled = "HealthCheckCanceled",
        /// Applied and healthy.
        ReconciliationSucceeded = "ReconciliationSucceeded",
        /// Not applied.
        ReconciliationFailed = "ReconciliationFailed",
        /// An expression is not valid.
        InvalidCelExpression = "InvalidCELExpression",
        /// A feature is switched off.
        FeatureGateDisabled = "FeatureGateDisabled",
        /// A reference that is not allowed.
        AccessDenied = "AccessDenied",
        /// A finalizer was removed from an object that no longer needs one.
        Migration = "Migration",

        // Sources.
        /// The address is not valid.
        UrlInvalid = "URLInvalid",
        /// Login failed.
        AuthenticationFailed = "AuthenticationFailed",
        /// A signature did not hold.
        VerificationError = "VerificationError",
        /// A folder could not be made.
        DirectoryCreationFailed = "DirectoryCreationFailed",
        /// A file could not be looked at.
        StatOperationFailed = "StatOperationFailed",
        /// Something could not be read.
        ReadOperationFailed = "ReadOperationFailed",
        /// The storage is locked.
        AcquireLockFailed = "AcquireLockFailed",
        /// The artifact could not be written.
        ArchiveOperationFailed = "ArchiveOperationFailed",
        /// The link to the latest artifact could not be written.
        SymlinkUpdateFailed = "SymlinkUpdateFailed",
        /// Nothing new.
        ArtifactUpToDate = "ArtifactUpToDate",
        /// The index cache failed.
        CacheOperationFailed = "CacheOperationFailed",
        /// Status could not be written.
        PatchOperationFailed = "PatchOperationFailed",
        /// The token service's settings are not valid.
        InvalidStsConfiguration = "InvalidSTSConfiguration",
        /// The provider's settings are not valid.
        InvalidProviderConfiguration = "InvalidProviderConfiguration",
        /// Git failed.
        GitOperationFailed = "GitOperationFailed",
        /// Git worked.
        GitOperationSucceeded = "GitOperationSucceeded",
        /// The repository has no commits.
        EmptyGitRepository = "EmptyGitRepository",
        /// There is a new revision.
        NewRevision = "NewRevision",
        /// An included repository changed.
        IncludeChange = "IncludeChange",
        /// An included repository does not exist.
        NotFound = "NotFound",
        /// An included repository has no artifact.
        NoArtifact = "NoArtifact",
        /// An include's path is not valid.
        IllegalPath = "IllegalPath",
        /// An included artifact could not be copied.
        CopyFailure = "CopyFailure",
        /// Ignore patterns could not be read.
        SourceIgnoreError = "SourceIgnoreError",
        /// The verification mode does not fit the ref.
        InvalidVerificationMode = "InvalidVerificationMode",
        /// What was checked out is not what was signed.
        InvalidGitObject = "InvalidGitObject",
        /// The tag's signature does not hold.
        InvalidTagSignature = "InvalidTagSignature",
        /// The commit's signature does not hold.
        InvalidCommitSignature = "InvalidCommitSignature",
        /// The image could not be pulled.
        OciArtifactPullFailed = "OCIArtifactPullFailed",
        /// The layer could not be unpacked or copied.
        OciArtifactLayerOperationFailed = "OCIArtifactLayerOperationFailed",
        /// The index could not be fetched.
        IndexationFailed = "IndexationFailed",
        /// The bucket could not be read.
        BucketOperationFailed = "BucketOperationFailed",
        /// A signature did not hold; event.
        ArtifactVerificationFailed = "ArtifactVerificationFailed",
        /// A new artifact was stored; event.
        NewArtifact = "NewArtifact",
        /// Old artifacts were deleted; event.
        GarbageCollectionSucceeded = "GarbageCollectionSucceeded",
        /// Old artifacts could not be deleted; event.
        GarbageCollectionFailed = "GarbageCollectionFailed",

        // HelmChart.
        /// The source does not exist or cannot be read.
        SourceUnavailable = "SourceUnavailable",
        /// The source cannot hold charts.
        UnsupportedSourceKind = "UnsupportedSourceKind",
        /// The source has no artifact.
        NoSourceArtifact = "NoSourceArtifact",
        /// There is a new chart.
        NewChart = "NewChart",
        /// The chart was pulled.
        ChartPullSucceeded = "ChartPullSucceeded",
        /// The chart was packaged.
        ChartPackageSucceeded = "ChartPackageSucceeded",
        /// There is no such chart or version.
        InvalidChartReference = "InvalidChartReference",
        /// The chart could not be pulled.
        ChartPullError = "ChartPullError",
        /// The chart's metadata could not be changed.
        MetadataPatchError = "MetadataPatchError",
        /// Values files could not be merged.
        ValuesFilesError = "ValuesFilesError",
        /// The chart's dependencies could not be had.
        DependencyBuildError = "DependencyBuildError",
        /// The chart could not be packaged.
        ChartPackageError = "ChartPackageError",
        /// The chart's signature does not hold.
        ChartVerificationError = "ChartVerificationError",
        /// Something else.
        Unknown = "Unknown",

        // HelmRelease.
        /// The chart is not ready.
        SourceNotReady = "SourceNotReady",
        /// The values could not be composed.
        ValuesError = "ValuesError",
        /// The chart's version could not be set.
        ChartMutateError = "ChartMutateError",
        /// The cluster cannot be reached.
        RestClientError = "RESTClientError",
        /// The objects cannot be looked at.
        ResourceManagerError = "ResourceManagerError",
        /// Helm could not be set up.
        FactoryError = "FactoryError",
        /// Helm could not be set up; another step.
        ConfigFactoryErr = "ConfigFactoryErr",
        /// The state of the release could not be found out.
        StateError = "StateError",
        /// Something else.
        ReconcileError = "ReconcileError",
        /// Installed.
        InstallSucceeded = "InstallSucceeded",
        /// Not installed.
        InstallFailed = "InstallFailed",
        /// Upgraded.
        UpgradeSucceeded = "UpgradeSucceeded",
        /// Not upgraded.
        UpgradeFailed = "UpgradeFailed",
        /// Tests passed.
        TestSucceeded = "TestSucceeded",
        /// Tests failed.
        TestFailed = "TestFailed",
        /// Tests have not run yet.
        AwaitingTests = "AwaitingTests",
        /// Rolled back.
        RollbackSucceeded = "RollbackSucceeded",
        /// Not rolled back.
        RollbackFailed = "RollbackFailed",
        /// Uninstalled.
        UninstallSucceeded = "UninstallSucceeded",
        /// Not uninstalled.
        UninstallFailed = "UninstallFailed",
        /// The release was left half-way by somebody.
        PendingRelease = "PendingRelease",
        /// Somebody changed the cluster.
        DriftDetected = "DriftDetected",
        /// Nobody changed the cluster.
        NoDriftDetected = "NoDriftDetected",
        /// Given up.
        RetriesExceeded = "RetriesExceeded",
        /// There is nothing to roll back to.
        MissingRollbackTarget = "MissingRollbackTarget",

        // Notification.
        /// The Receiver's token is missing.
        TokenNotFound = "TokenNotFound",
        /// The spec contradicts itself.
        ValidationFailed = "ValidationFailed",
        /// A notification could not be sent; event.
        NotificationDispatchFailed = "NotificationDispatchFailed",
        /// An Alert's settings are not valid; event.
        InvalidConfig = "InvalidConfig",
        /// Metadata of an Alert and an event contradict each other; event.
        MetadataAppendFailed = "MetadataAppendFailed",

        // Image.
        /// The image's name is not valid.
        ImageUrlInvalid = "ImageURLInvalid",
        /// The policy is not valid.
        InvalidPolicy = "InvalidPolicy",
        /// An interval is missing.
        IntervalNotConfigured = "IntervalNotConfigured",
        /// The repository could not be set up.
        SourceManagerFailed = "SourceManagerFailed",
        /// Files could not be changed.
        UpdateFailed = "UpdateFailed",
        /// The policy selector is not valid.
        InvalidPolicySelector = "InvalidPolicySelector",
        /// The Git settings are not valid.
        InvalidSourceConfiguration = "InvalidSourceConfiguration",
        /// The update strategy is not known.
        InvalidUpdateStrategy = "InvalidUpdateStrategy",
        /// The message template uses a field that is gone.
        RemovedTemplateField = "RemovedTemplateField",

        // ArtifactGenerator.
        /// A source could not be fetched.
        SourceFetchFailed = "SourceFetchFailed",
        /// Switched off by annotation.
        ReconciliationDisabled = "ReconciliationDisabled",
        /// The artifacts are there; event.
        Ready = "Ready",
    }
}
