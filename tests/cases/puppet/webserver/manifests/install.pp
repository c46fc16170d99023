class webserver::install {
  package { $webserver::package: ensure => installed }
  package { ['nano', 'nonexistent-package']: ensure => absent }
}
