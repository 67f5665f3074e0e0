// What does `catena try` do?
import { dirname } from 'node:path';
import { protectFiles } from '../../lab/host.ts';
import { endWithPlugins, envOfPlugins, RIGHTS_VARIABLE, type Rights } from '../../lab/reexec.ts';
import { renderSection, type Section, toJson } from '../../lab/report.ts';
import { tryChain } from '../../lab/try.ts';
import { findIfnameProblem } from '../../net/interface.ts';
import { inEnvelope } from '../answers/envelope.ts';
import { capabilitiesOf } from '../capability-options.ts';
import type { CommandCall } from '../command.ts';
import { chainOf } from '../named-list.ts';
import { isData, printData } from '../output/format.ts';
import { foldText, styleOf, widthOf } from '../terminal/lines.ts';
import { openProgress, rerunWithProgress } from '../terminal/progress.ts';

/** Runs a conflist in temporary namespaces, which takes two processes: the first one starts the second, which does the work. */
export async function run(call: CommandCall): Promise<number> {
  const rights = call.env[RIGHTS_VARIABLE] as Rights | undefined;
  if (rights !== undefined) return (await tryInside(call, rights)) ? 0 : 1;
  // Reports an invalid file or argument before anything is created.
  readTrial(call);
  return await rerunWithProgress(call);
}

async function tryInside(call: CommandCall, rights: Rights): Promise<boolean> {
  const trial = readTrial(call);
  // Plugins are started from the executable itself, so its directory must be visible.
  const shown = [...trial.pluginDirs, dirname(process.execPath)];
  endWithPlugins();
  protectFiles(shown);
  const sections: Section[] = [];
  const [style, width] = [styleOf(call), widthOf(call)];
  const progress = openProgress(call, 'try');
  progress.step('a fake host');
  const ok = await tryChain({
    ...trial,
    shown,
    rootless: rights === 'user',
    keepGoing: call.on('keep-going'),
    env: envOfPlugins(call.env),
    tell(section) {
      if (isData(call)) sections.push(section);
      else {
        progress.clear();
        call.out(foldText(renderSection(section, style, width), width));
      }
      progress.step(stepAfter(section));
    },
  }).finally(progress.end);
  if (isData(call)) await printData(call, inEnvelope('Trial', toJson(sections)));
  return ok;
}

/** What the lab does once it has told of a section. */
function stepAfter(section: Section): string {
  if (section.kind === 'lab') return 'ADD';
  if (section.kind === 'verb')
    return { ADD: 'CHECK', CHECK: 'probes', DEL: 'what is left behind' }[section.verb] ?? '';
  return section.kind === 'probing' || section.kind === 'probe' ? 'probes, DEL' : '';
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
  return { ...chainOf(call), devices: readDevices(call), capabilities: capabilitiesOf(call) };
}
