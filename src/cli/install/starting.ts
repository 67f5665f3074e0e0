// How does `catena install` have the daemon started, and a running one replaced?
import { statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CORE_NAME } from '../../chain/config/core-name.ts';
import { runDir } from '../../cni/directories.ts';
import { renderOnDemand } from '../../daemon/on-demand.ts';
import { findRunning, succeed } from '../../daemon/who-listens.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { install } from '../../install/lay.ts';
import type { InstallPlan, Wanted } from '../../install/plan.ts';
import { installedStarter, STARTERS, type Starter, startersFor } from '../../install/starters.ts';
import { disableUnits, enableUnits, forgetUnits, isBooted } from '../../install/systemctl.ts';
import type { TextFile } from '../../install/units.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/** What is to start the daemon, and what did until now. */
export interface Starting {
  readonly starter: Starter;
  readonly before: Starter | undefined;
  readonly files: readonly TextFile[];
  /** Whether the units are where this host's systemd looks. */
  readonly isHere: boolean;
}

/** Where systemd looks for an administrator's units, below `--etc`. */
const UNIT_DIR = 'systemd/system';
const HERE = `/etc/${UNIT_DIR}`;

/** Long enough for a daemon to start on a busy host. */
const TAKE_OVER_MS = 20_000;

/** What `--daemon` asks for, or an earlier installation; undefined if neither says anything. */
export function starterOf(call: CommandCall, binDir: string): Starting | undefined {
  const given = call.text('daemon');
  const asked = STARTERS.find(one => one === given);
  if (given !== undefined && asked === undefined)
    throw new UsageError(`Cannot start the daemon by "${given}": there are ${STARTERS.join(', ')}`);
  const before = installedStarter(binDir);
  const starter = asked ?? before?.starter;
  if (starter === undefined) return undefined;
  const etc = call.text('etc');
  const [path] = before?.starter === 'systemd' ? before.paths : [];
  const unitDir =
    etc === undefined && path !== undefined ? dirname(path) : join(absolutePath(etc || '/etc'), UNIT_DIR);
  const onDemand = renderOnDemand({
    runDir: absolutePath(runDir(call.env), call.cwd),
    args: ['--log', 'none', '--idle-exit', '300'],
  });
  return {
    starter,
    before: before?.starter,
    files: startersFor(starter, { binDir, unitDir, onDemand }),
    isHere: unitDir === HERE,
  };
}

/** Installs. Units that are no longer wanted are stopped while their files exist. */
export function layDown(wanted: Wanted, starting: Starting | undefined): InstallPlan {
  const stops =
    starting?.before === 'systemd' && starting.starter !== 'systemd' && starting.isHere && isBooted();
  if (stops) disableUnits();
  const plan = install(wanted, TOOL_VERSION);
  if (stops) forgetUnits();
  return plan;
}

/** Enables the units, and has a daemon of the replaced executables replaced. */
export async function finishStarting(
  call: CommandCall,
  { wanted, steps }: InstallPlan,
  starting: Starting | undefined,
): Promise<{ readonly ok: boolean; readonly notes: readonly string[] }> {
  const kept = steps.filter(({ place, action }) => place === 'starter' && action === 'keep');
  const notes = kept.map(({ path }) => `"${path}" was left as it is: the daemon is started as it says`);
  let ok = true;
  if (starting?.starter === 'systemd') {
    if (!starting.isHere)
      notes.push(
        `the units are in "${dirname(starting.files[0]?.path ?? '')}", which systemd does not read here`,
      );
    else if (!isBooted())
      notes.push(
        'systemd does not run here: the units have no effect until it does, and are enabled by systemctl enable catena.socket',
      );
    else {
      try {
        enableUnits();
      } catch (error) {
        ok = false;
        notes.push((error as Error).message);
      }
    }
  }
  const handover = call.on('keep-daemon') ? undefined : await replaceDaemon(call, wanted.binDir);
  return { ok: ok && handover?.ok !== false, notes: handover ? [...notes, handover.what] : notes };
}

/** Of a daemon that was started from these executables, and is another file than the one that is there now. */
async function replaceDaemon(
  call: CommandCall,
  binDir: string,
): Promise<Awaited<ReturnType<typeof succeed>> | undefined> {
  const program = join(binDir, CORE_NAME);
  const found = statSync(program, { throwIfNoEntry: false });
  const daemon = await findRunning(absolutePath(runDir(call.env), call.cwd)).catch(() => undefined);
  // Built without a C compiler, every name is the same program, and a daemon has been started by one of them.
  const from = daemon?.state?.program;
  if (found === undefined || daemon?.state === undefined || from === undefined || dirname(from) !== binDir)
    return undefined;
  const executable = `${found.dev}:${found.ino}`;
  if (daemon.state.place?.executable === executable) return undefined;
  return succeed(daemon, executable, TAKE_OVER_MS);
}
