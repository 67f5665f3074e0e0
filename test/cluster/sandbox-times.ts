// How long did containerd take for the sandboxes of pods? Read from its log, which has a line when it is asked and one when it answers.

/** Milliseconds of each, in the order of the answers. */
export interface SandboxTimes {
  readonly started: readonly number[];
  readonly stopped: readonly number[];
}

const LINE = /^time="([^"]+)" level=\w+ msg="((?:[^"\\]|\\.)*)"/;
const ASKED =
  /^RunPodSandbox for &PodSandboxMetadata\{Name:([^,]*),Uid:([^,]*),Namespace:([^,]*),Attempt:(\d+),\}$/;
const ANSWERED =
  /^RunPodSandbox for &PodSandboxMetadata\{Name:([^,]*),Uid:([^,]*),Namespace:([^,]*),Attempt:(\d+),\} returns sandbox id/;
const FAILED =
  /^RunPodSandbox for &PodSandboxMetadata\{Name:[^,]*,Uid:[^,]*,Namespace:([^,]*),Attempt:\d+,\} failed, error$/;
const STOP = /^StopPodSandbox for \\"([0-9a-f]+)\\"$/;
const STOPPED = /^StopPodSandbox for \\"([0-9a-f]+)\\" returns successfully$/;

/** The times of the pods of one namespace, or of all. A sandbox is stopped more than once; the first time counts. */
export function sandboxTimes(log: string, namespace?: string): SandboxTimes {
  const asked = new Map<string, number>();
  const stopping = new Map<string, number>();
  const ours = new Set<string>();
  const [started, stopped]: [number[], number[]] = [[], []];
  for (const line of log.split('\n')) {
    const [, stamp = '', text = ''] = LINE.exec(line) ?? [];
    const at = milliseconds(stamp);
    const [, ...question] = ASKED.exec(text) ?? [];
    if (question.length) asked.set(question.join(), at);
    const [, ...answer] = ANSWERED.exec(text) ?? [];
    const begun = asked.get(answer.join());
    if (begun !== undefined && (namespace === undefined || answer[2] === namespace)) {
      started.push(at - begun);
      const [, id = ''] = /returns sandbox id \\"([0-9a-f]+)\\"/.exec(text) ?? [];
      ours.add(id);
    }
    const [, stop] = STOP.exec(text) ?? [];
    if (stop !== undefined && ours.has(stop) && !stopping.has(stop)) stopping.set(stop, at);
    const [, done] = STOPPED.exec(text) ?? [];
    const since = done === undefined ? undefined : stopping.get(done);
    if (done !== undefined && since !== undefined && ours.delete(done)) stopped.push(at - since);
  }
  return { started, stopped };
}

/** How often containerd could not start a sandbox of a namespace; kubelet asks again. */
export function failedSandboxes(log: string, namespace: string): number {
  const texts = log.split('\n').map(line => LINE.exec(line)?.[2] ?? '');
  return texts.filter(text => FAILED.exec(text)?.[1] === namespace).length;
}

/** The value below which that share of them is. */
export function quantile(values: readonly number[], share: number): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/** With fractions of a millisecond, which Date does not have. */
function milliseconds(stamp: string): number {
  const [, seconds = '', fraction = '0'] = /^([^.]+?)(?:\.(\d+))?Z$/.exec(stamp) ?? [];
  return Date.parse(`${seconds}Z`) + Number(`0.${fraction}`) * 1000;
}
