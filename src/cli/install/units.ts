// Which units run the daemon under systemd?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../../cni/directories.ts';
import { findManifest } from './files.ts';

/** A file with its path. */
export interface TextFile {
  readonly path: string;
  readonly text: string;
}

/** The names of the units; `catena.socket` starts `catena.service`. */
const SOCKET_UNIT = 'catena.socket';
export const SERVICE_UNIT = 'catena.service';

/** @param unitDir where the units are, usually /etc/systemd/system */
export function renderUnits(unitDir: string, binDir: string): readonly TextFile[] {
  return [
    { path: `${unitDir}/${SOCKET_UNIT}`, text: SOCKET },
    { path: `${unitDir}/${SERVICE_UNIT}`, text: renderService(binDir) },
  ];
}

const SOCKET = `# The first call starts the daemon. That call does not wait for it.
[Unit]
Description=Catena, CNI chains: socket
Before=containerd.service crio.service kubelet.service podman.service

[Socket]
# The daemon listens on sockets of its own under the names of the symbolic links, and restores the links when it ends.
ListenStream=/run/catena/catena.sock.start
Symlinks=/run/catena/catena.sock /run/catena/catena.sock.wire
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
`;

/** The command's path as systemd reads it: it divides a line at spaces, and "%" begins a specifier (systemd.service(5), "Command lines"). */
function commandIn(binDir: string): string {
  const path = `${binDir}/catena`.replaceAll(/["\\]/g, '\\$&').replaceAll('%', '%%');
  return /[\s'"\\;]/.test(path) ? `"${path}"` : path;
}

function renderService(binDir: string): string {
  return `# Keeps plugins loaded. Runtimes also work without it, but more slowly.
[Unit]
Description=Catena, CNI chains
Requires=${SOCKET_UNIT}
After=${SOCKET_UNIT} network-pre.target local-fs.target

[Service]
Type=notify
NotifyAccess=main
ExecStart=${commandIn(binDir)} daemon
# To end after ten minutes without a request, and to be started by the next one:
# ExecStart=
# ExecStart=${commandIn(binDir)} daemon --idle-exit 600
Restart=on-failure
RestartSec=1
# Another daemon has the socket: restarting this one would not help.
RestartPreventExitStatus=3
# A daemon that hangs is killed and restarted.
WatchdogSec=30
# Requests in progress are finished before the daemon's child processes end.
KillMode=mixed
TimeoutStopSec=90
# Locks and sockets survive the daemon.
RuntimeDirectory=catena
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
StateDirectory=catena
LimitNOFILE=65536
OOMScoreAdjust=-999

# Hardening. Third-party plugins run as children of the daemon and are bound by all of it.
UMask=0022
KeyringMode=private
LockPersonality=yes
RestrictRealtime=yes
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_TIME CAP_WAKE_ALARM CAP_SYS_RAWIO CAP_SYS_PACCT CAP_SYS_TTY_CONFIG
CapabilityBoundingSet=~CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_LINUX_IMMUTABLE CAP_LEASE CAP_AUDIT_CONTROL CAP_AUDIT_READ

# Left out on purpose:
# PrivateMounts=, PrivateTmp=, PrivateDevices=, ProtectSystem=, ProtectHome=, ProtectProc=, ProtectKernelTunables=,
#   ProtectKernelModules=, ProtectKernelLogs=, ProtectControlGroups=, ReadOnlyPaths=, InaccessiblePaths=, RootDirectory=:
#   each gives the service a mount namespace of its own. Namespaces of pods that are mounted on the host later would not appear
#   in it, and the daemon declines calls from other mount namespaces, so it would serve none.
# PrivateNetwork=, NetworkNamespacePath=: the daemon configures the host's network namespace.
# PrivatePIDs=: paths such as /proc/4711/ns/net name processes of the host.
# PrivateUsers=, User=, DynamicUser=: the kernel lets only root of the host configure devices.
# RestrictNamespaces=: plugins enter the pods' network namespaces (setns(2)).
# ProtectHostname=: it gives the service a UTS namespace of its own, which third-party plugins may not expect.
# RestrictAddressFamilies=, IPAddressDeny=: third-party plugins may speak to anything, as DHCP clients and API servers show.
# SystemCallFilter=, SystemCallArchitectures=, RestrictSUIDSGID=, NoNewPrivileges=: third-party plugins may call anything, may be
#   of another architecture, and may have file capabilities or a SELinux domain of their own.
# MemoryDenyWriteExecute=: the JavaScript engine compiles at run time.
# ProtectClock=, DeviceAllow=: they restrict devices, and plugins open /dev/net/tun and /dev/vhost-net.
# MemoryMax=, TasksMax=: a limit would end plugins in the middle of an ADD.

[Install]
Also=${SOCKET_UNIT}
`;
}

/** sd_booted(3) */
const BOOTED = '/run/systemd/system';
const DEADLINE_MS = 120_000;

/** Whether systemd runs as init, so that units have an effect now. */
export function isBooted(): boolean {
  return existsSync(BOOTED);
}

/** Makes systemd listen on the socket, now and after a boot. A daemon of the replaced executables ends, and a new one may start. */
export function enableUnits(): void {
  systemctl('daemon-reload');
  systemctl('enable', '--now', SOCKET_UNIT);
  systemctl('try-restart', SERVICE_UNIT);
}

/** Does the work, which removes the files of the units; if systemd has them, stops both before. */
export function withoutUnits<T>(hasThem: boolean, work: () => T): T {
  if (hasThem) systemctl('disable', '--now', SOCKET_UNIT, SERVICE_UNIT);
  const done = work();
  if (hasThem) systemctl('daemon-reload');
  return done;
}

/** @throws Error with what systemctl reports */
function systemctl(...args: string[]): void {
  const argv = ['systemctl', ...args];
  const advice = 'the files are in place; run it by hand';
  if (Bun.which('systemctl') === null)
    throw new Error(`Cannot run "${argv.join(' ')}": there is no systemctl; ${advice}`);
  const { exitCode, stderr } = Bun.spawnSync(argv, {
    stdin: 'ignore',
    stdout: 'ignore',
    timeout: DEADLINE_MS,
  });
  if (exitCode !== 0)
    throw new Error(
      `Cannot run "${argv.join(' ')}": ${stderr.toString().trim() || `exit code ${exitCode}`}; ${advice}`,
    );
}

/** `none`: it is started by other means, or never. */
export const STARTERS = ['systemd', 'on-demand', 'none'] as const;
type Starter = (typeof STARTERS)[number];

/**
 * The files that make it so.
 * @param onDemand the text of the file for calls
 */
export function startersFor(
  starter: Starter,
  { binDir, unitDir, onDemand }: Readonly<Record<'binDir' | 'unitDir' | 'onDemand', string>>,
): readonly TextFile[] {
  if (starter === 'systemd') return renderUnits(unitDir, binDir);
  if (starter === 'on-demand')
    return [{ path: join(binDir, `${CORE_NAME}${ON_DEMAND_SUFFIX}`), text: onDemand }];
  return [];
}

/** What an earlier installation chose; undefined if it chose nothing. */
export function installedStarter(binDir: string): { starter: Starter; paths: readonly string[] } | undefined {
  const paths = Object.keys(findManifest(binDir)?.starters ?? {});
  if (paths.some(path => path.endsWith(`/${SERVICE_UNIT}`))) return { starter: 'systemd', paths };
  return paths.length > 0 ? { starter: 'on-demand', paths } : undefined;
}
