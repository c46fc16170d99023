# One user.
define accounts::user (
  Integer $uid,
  Optional[Boolean] $admin = false,
  Array[String] $keys = [],
  Stdlib::Absolutepath $home = "/home/${title}",
) {
  if $admin {
    $groups = [$accounts::admin_group]
  } else {
    $groups = []
  }
  user { $title:
    ensure     => present,
    uid        => $uid,
    groups     => $groups,
    home       => $home,
    managehome => true,
    shell      => '/bin/bash',
    comment    => "User ${title}",
    require    => Group[$accounts::admin_group],
  }
  file { "${home}/.profile.local":
    content => epp('accounts/profile.epp', { 'name' => $title, 'admin' => $admin }),
    owner   => $title,
    mode    => '0600',
    require => User[$title],
  }
  $keys.each |String $key| {
    ssh_authorized_key { "${title}@example.com":
      user    => $title,
      type    => 'ssh-ed25519',
      key     => $key,
      require => User[$title],
    }
  }
}
