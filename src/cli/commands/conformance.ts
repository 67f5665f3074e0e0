// What does `catena conformance` do?
import { realpathSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { findPlugin } from '../../chain/config/find-plugin.ts';
import { absolutePath } from '../../files/read-file.ts';
import { findSample, readObject, type Subject } from '../../lab/conformance/exam.ts';
import {
  examine,
  RULES,
  renderFinding,
  renderHeading,
  renderVerdict,
} from '../../lab/conformance/examine.ts';
import { FRESH_DIRS, notOfPlugins, protectFiles } from '../../lab/host.ts';
import { endWithPlugins, envOfPlugins, RIGHTS_VARIABLE } from '../../lab/reexec.ts';
import { capabilitiesOf } from '../capability-options.ts';
import { type CommandCall, pathOf, secondsOf } from '../command.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import { pluginDirsOf } from '../target.ts';
import { foldText, styleOf, widthOf } from '../terminal/lines.ts';
import { openProgress, rerunWithProgress } from '../terminal/progress.ts';

const DEADLINE_S = 10;

/** Examines an executable in namespaces where it can do no harm, which takes a second process: see `catena try`. */
export async function run(call: CommandCall): Promise<number> {
  const subject = readSubject(call);
  if (call.env[RIGHTS_VARIABLE] === undefined) return await rerunWithProgress(call);
  const { executable, beside, pluginDirs } = subject;
  // A configuration may refer to a file in its own directory.
  const given = [call.text('conf') ?? call.text('from') ?? []].flat().map(file => absolutePath(file));
  const files = [
    executable,
    realpathSync(executable),
    process.execPath,
    ...given,
    ...(beside ? [beside] : []),
  ];
  const shown = [...files.map(file => dirname(file)), ...pluginDirs];
  endWithPlugins();
  protectFiles(shown);
  const watch = { dirs: FRESH_DIRS, skip: notOfPlugins(shown) };
  const [style, width] = [styleOf(call), widthOf(call)];
  if (!isData(call)) call.out(foldText(renderHeading(subject), width));
  const progress = openProgress(call, 'conformance');
  progress.step(`rule 1 of ${RULES.length}`);
  let examined = 0;
  const report = await examine({ ...subject, watch }, finding => {
    progress.clear();
    if (!isData(call)) call.out(foldText(renderFinding(finding, style), width));
    examined += 1;
    if (examined < RULES.length) progress.step(`rule ${examined + 1} of ${RULES.length}`);
  }).finally(progress.end);
  await printAnswer(call, 'Conformance', report, () => renderVerdict(report));
  return report.ok ? 0 : 1;
}

function readSubject(call: CommandCall): Omit<Subject, 'watch'> {
  const [given = ''] = call.positionals;
  const executable = given.includes('/') ? absolutePath(given) : findPlugin(given, pluginDirsOf(call));
  findPlugin(basename(executable), [dirname(executable)]);
  const dirs = call.texts('bin-dir').map(dir => absolutePath(dir));
  const prevResult = call.text('prev-result');
  const sample = readSample(call, executable);
  return {
    executable,
    conf: sample?.conf,
    chained: sample?.chained || call.on('chained') || prevResult !== undefined,
    prevResult: prevResult === undefined ? undefined : readObject(prevResult),
    device: call.text('device'),
    bridge: call.text('on-bridge'),
    beside: pathOf(call, 'beside'),
    ifname: call.text('ifname') || 'eth0',
    pluginDirs: dirs.length ? dirs : [dirname(executable)],
    env: envOfPlugins(call.env),
    deadlineMs: 1_000 * secondsOf(call, 'timeout', DEADLINE_S),
  };
}

function readSample(call: CommandCall, executable: string) {
  const [conf, from] = [call.text('conf'), call.text('from')];
  if (conf !== undefined) return { conf: readObject(conf), chained: false };
  return from === undefined ? undefined : findSample(from, basename(executable), capabilitiesOf(call));
}
