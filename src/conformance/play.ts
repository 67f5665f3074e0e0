// In which situations are rules examined?
import type { Exam } from './exam.ts';
import type { Pod } from './pod.ts';
import { insistOk } from './rule.ts';
import type { Scene } from './scene.ts';

/** Plays a scene in which the plugin has run before. */
export function warm(exam: Exam, play: (scene: Scene) => Promise<void>): Promise<void> {
  return exam.scene(async scene => {
    await scene.warm();
    await play(scene);
  });
}

/** Runs ADD for a pod, passes the pod to a function, and then runs DEL. */
export async function attached(
  exam: Exam,
  look: (scene: Scene, pod: Pod) => void | Promise<void>,
): Promise<void> {
  await exam.scene(async scene => {
    const pod = scene.pod();
    insistOk(await scene.add(pod), 'ADD');
    try {
      await look(scene, pod);
    } finally {
      await scene.del(pod);
    }
  });
}
