"""Files encrypted by SOPS (https://getsops.io), with recipients of age."""
