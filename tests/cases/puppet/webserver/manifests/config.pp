class webserver::config {
  File {
    owner => 'root',
    group => 'www-data',
    mode  => '0640',
  }
  file { [$webserver::directory, "${webserver::directory}/sites"]:
    ensure => directory,
  }
  file { 'main configuration':
    path    => "${webserver::directory}/main.conf",
    content => template('webserver/main.conf.erb'),
    notify  => Exec['count changes'],
  }
  file { "${webserver::directory}/mime.types":
    source => 'puppet:///modules/webserver/mime.types',
  }
  $webserver::aliases.each |$alias_name| {
    file { "${webserver::directory}/sites/${alias_name}.conf":
      content => "server_name ${alias_name}.example.com\nport ${webserver::port}\n",
    }
  }
  file { "${webserver::directory}/enabled":
    ensure => link,
    target => 'sites',
  }
  unless $webserver::tls {
    file { "${webserver::directory}/plain": ensure => file }
  }
  exec { 'count changes':
    command     => "echo changed >> ${webserver::directory}/changes",
    path        => ['/usr/bin', '/bin'],
    refreshonly => true,
  }
  exec { 'create the key':
    command => "head -c 4 /dev/zero | od -An > ${webserver::directory}/key",
    path    => '/usr/bin:/bin',
    creates => "${webserver::directory}/key",
    require => File[$webserver::directory],
  }
  file { '/srv/webserver':
    ensure  => directory,
    source  => 'puppet:///modules/webserver/tree',
    recurse => true,
    purge   => true,
    mode    => '0644',
  }
}
