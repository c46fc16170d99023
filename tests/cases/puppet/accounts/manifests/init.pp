# Groups, users and their keys.
class accounts (
  Hash[String, Hash] $users = {},
  String $admin_group = 'admins',
  Array[String] $removed = [],
) {
  group { $admin_group: ensure => present, gid => 1900 }
  $users.each |String $name, Hash $user| {
    accounts::user { $name:
      uid   => $user['uid'],
      admin => $user['admin'],
      keys  => pick($user['keys'], []),
    }
  }
  user { $removed: ensure => absent }
  file { '/etc/sudoers.d':
    ensure => directory,
    mode   => '0750',
  }
  file { '/etc/sudoers.d/admins':
    content => "%${admin_group} ALL=(ALL) ALL\n",
    mode    => '0440',
    require => File['/etc/sudoers.d'],
  }
}
