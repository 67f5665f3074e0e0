// How does the first call start a daemon, and many calls at once only one?
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { CORE_NAME, ON_DEMAND_SUFFIX } from '../cni/directories.ts';
import { attempt } from '../cni/errors.ts';
import { isObject, tryParse } from '../cni/json.ts';
import { bootId } from '../files/process-stat.ts';
import { holdFlock } from '../sys/flock.ts';
import {
  ENGINE_SETTINGS,
  ON_DEMAND_VARIABLE,
  type ProcessPlace,
  START_AGAIN_MS,
  socketPathOf,
  startNoteOf,
} from './protocol.ts';
import { identityOf, namespacesOf } from './who-listens.ts';

/** What such a daemon gets of the environment. Each request brings its own, and marks of runners are not for a daemon. */
const VARIABLES = [
  'PATH',
  'CATENA_STATE_DIR',
  'CATENA_CNI_CACHE_DIR',
  'CATENA_NODE_NAME',
  'CATENA_LOG_LEVEL',
] as const;

/** What `catena install --daemon on-demand` writes beside the Bun program. */
interface OnDemand {
  /** The run directory of these daemons. A call with another one, as in a test on this host, starts none. */
  readonly runDir: string;
  /** Options of `catena daemon`. */
  readonly args: readonly string[];
  /** Where the installation was made. */
  readonly home?: Home;
}

/** Network and mount namespace, in one boot of the machine. */
interface Home extends Pick<ProcessPlace, 'network' | 'mount'> {
  readonly boot: string;
}

export function renderOnDemand(settings: Omit<OnDemand, 'home'>): string {
  return `${JSON.stringify({ ...settings, home: homeOf('self') }, null, 2)}\n`;
}

/** Undefined for a process whose namespaces this user may not see. */
function homeOf(process: 'self' | '1'): Home | undefined {
  return attempt(() => ({ boot: bootId(), ...namespacesOf(process) }));
}

/**
 * Whether a daemon may be started from here: in the namespaces of the installation, or of process 1. One that starts anywhere else, as of
 * `ip netns exec`, has the seat of the host and declines all of its calls.
 */
export function isAtHome(installed: Home | undefined, here = homeOf('self')): boolean {
  const homes = [installed, homeOf('1')].filter(home => home !== undefined);
  const isHere = ({ boot, network, mount }: Home) =>
    boot === here?.boot && network === here.network && mount === here.mount;
  return homes.length === 0 || homes.some(isHere);
}

/**
 * Whether a daemon that was started on demand only keeps the seat from one that could serve: it declined a call that would have started
 * one itself, at home and of the executable that now has this one's name.
 */
export function isInTheWayOf({ executable, network, mount }: ProcessPlace): boolean {
  if (executable !== attempt(() => identityOf(process.execPath))) return false;
  const file = `${dirname(process.execPath)}/${CORE_NAME}${ON_DEMAND_SUFFIX}`;
  const settings = existsSync(file) ? readOnDemand(file) : undefined;
  return settings !== undefined && isAtHome(settings.home, { boot: bootId(), network, mount });
}

/**
 * Starts a daemon, unless one was started a moment ago: of calls that come at once, one starts it, and one that ends at once is not
 * started again for {@link START_AGAIN_MS}. Waits for nothing, and a failure is none of the call's: it does its work itself.
 * @param file the settings beside the Bun program
 */
export function startOnDemand(file: string, runDir: string): void {
  let release: (() => void) | undefined;
  try {
    const settings = readOnDemand(file);
    if (settings?.runDir !== runDir || !isAtHome(settings.home)) return;
    mkdirSync(runDir, { recursive: true, mode: 0o700 });
    const note = startNoteOf(socketPathOf(runDir));
    release = holdFlock(note, { mode: 0o600 });
    if (release === undefined || !isDue(note)) return;
    // Noted first: where that fails, every call would start one.
    const fd = openSync(note, constants.O_WRONLY | constants.O_TRUNC | constants.O_NOFOLLOW);
    writeSync(fd, `${process.pid}\n`);
    closeSync(fd);
    Bun.spawn([process.execPath, 'daemon', ...settings.args], {
      argv0: 'catena',
      env: {
        ...Object.fromEntries(VARIABLES.map(name => [name, process.env[name]])),
        CATENA_RUN_DIR: runDir,
        [ON_DEMAND_VARIABLE]: '1',
        ...ENGINE_SETTINGS,
      },
      cwd: '/',
      stdio: ['ignore', 'ignore', 'ignore'],
      // A session of its own: no signal for this call's terminal or process group reaches it.
      detached: true,
    }).unref();
  } catch {
    // A directory that this user may not write to, for example.
  } finally {
    release?.();
  }
}

function readOnDemand(file: string): OnDemand | undefined {
  const found = tryParse(readFileSync(file, 'utf8'));
  const { runDir, args, home } = isObject(found) ? found : {};
  const isUsable =
    typeof runDir === 'string' && Array.isArray(args) && args.every(one => typeof one === 'string');
  return isUsable
    ? { runDir, args, ...(isObject(home) ? { home: home as unknown as Home } : {}) }
    : undefined;
}

/** A note from the future is one from before the clock was set. An empty one was only locked. */
function isDue(note: string): boolean {
  const { size, mtimeMs } = statSync(note);
  const age = Date.now() - mtimeMs;
  return size === 0 || age < 0 || age >= START_AGAIN_MS;
}

export interface OwnStart {
  /** Path of the executable, which may already be another file. */
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  /** A service manager starts the next daemon. */
  readonly isManaged: boolean;
}

/** `ending`: this daemon ends, and its service manager starts the next one. `same`: the executable is still the same. */
type Succession = { readonly successor: number } | 'ending' | 'same';

const REPLACE = '--replace';

/**
 * Starts the file that now has this executable's name, with the same options, environment and outputs. It asks this daemon to hand over
 * once it can listen; until then, and if it never can, this one serves.
 * @throws Error if it cannot be started
 */
export function startSuccessor(
  { program, args, cwd, isManaged }: OwnStart,
  { executable }: ProcessPlace,
): Succession {
  if (identityOf(program) === executable) return 'same';
  if (isManaged) return 'ending';
  const options = args.includes(REPLACE) ? args : [...args, REPLACE];
  const child = Bun.spawn([program, ...options], {
    argv0: 'catena',
    env: process.env,
    cwd: cwd ?? '/',
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  child.unref();
  return { successor: child.pid };
}
