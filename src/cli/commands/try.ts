// What does `catena try` do?
import { dirname } from 'node:path';
import { loadFile } from '../../chain/config/load.ts';
import { parseCniArgs } from '../../cni/cni-args.ts';
import { type JsonObject, parseObject } from '../../cni/json.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { layGround } from '../../lab/ground.ts';
import { RIGHTS_VARIABLE, type Rights, rerunInNamespaces } from '../../lab/reexec.ts';
import { renderSection } from '../../lab/render.ts';
import { type Section, toJson } from '../../lab/report.ts';
import { tryChain } from '../../lab/try.ts';
import { findIfnameProblem } from '../../net/ifname.ts';
import type { CommandCall } from '../command.ts';
import { styleOf } from '../terminal/colour.ts';

/** Directories that could lead plugins out of the lab. */
const OWN_VARIABLES = ['CATENA_RUN_DIR', 'CATENA_STATE_DIR', 'CATENA_CNI_CACHE_DIR', RIGHTS_VARIABLE];

/** Runs a conflist in temporary namespaces, which takes two processes: the first one starts the second, which does the work. */
export async function run(call: CommandCall): Promise<number> {
  const rights = call.env[RIGHTS_VARIABLE] as Rights | undefined;
  if (rights !== undefined) return (await tryInside(call, rights)) ? 0 : 1;
  // Reports an invalid file or argument before anything is created.
  readTrial(call);
  const { exitCode, stderr } = rerunInNamespaces(call.env);
  call.err(stderr);
  return exitCode;
}

async function tryInside(call: CommandCall, rights: Rights): Promise<boolean> {
  const trial = readTrial(call);
  // Plugins are started from the executable itself, so its directory must be visible.
  const shown = [...trial.pluginDirs, dirname(process.execPath)];
  layGround(shown);
  const sections: Section[] = [];
  const style = styleOf(call);
  const ok = await tryChain({
    ...trial,
    shown,
    rootless: rights === 'user',
    keepGoing: call.on('keep-going'),
    env: Object.fromEntries(Object.entries(call.env).filter(([name]) => !OWN_VARIABLES.includes(name))),
    tell(section) {
      if (call.on('json')) sections.push(section);
      else call.out(renderSection(section, style));
    },
  });
  if (call.on('json')) call.out(`${JSON.stringify(toJson(sections), null, 2)}\n`);
  return ok;
}

function readDevices(call: CommandCall): string[] {
  const names = [...new Set(call.texts('device'))];
  for (const name of names) {
    const problem = findIfnameProblem(name);
    if (problem) throw new Error(`Cannot use device "${name}" (--device): ${problem}`);
  }
  return names;
}

function readTrial(call: CommandCall) {
  const [file = ''] = call.positionals;
  const dirs = call.texts('bin-dir');
  const cap = call.text('cap');
  return {
    list: loadFile(file),
    pluginDirs: (dirs.length ? dirs : [dirname(process.execPath)]).map(dir => absolutePath(dir)),
    ifname: call.text('ifname') || 'eth0',
    devices: readDevices(call),
    args: parseCniArgs(call.text('args') ?? ''),
    capabilities: (cap ? parseObject(cap, 'capability arguments (--cap)') : {}) as JsonObject,
  };
}
