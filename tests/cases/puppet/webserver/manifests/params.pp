class webserver::params {
  case $facts['os']['family'] {
    'Debian': {
      $directory = '/etc/webserver'
      $package = 'tree'
    }
    'RedHat': {
      $directory = '/etc/webserver.d'
      $package = 'tree-rh'
    }
    default: {
      fail("${facts['os']['family']} is unsupported")
    }
  }
}
