//! SOPS as a function: names the wrapped keys, is handed data keys, opens the file.
