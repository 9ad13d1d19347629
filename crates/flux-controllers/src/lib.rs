//! Every controller of the GitOps toolkit, and the loop they share.
