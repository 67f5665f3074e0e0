// In which situations are rules examined?
import type { Exam } from './exam.ts';
import type { Pod } from './pod.ts';
import { insistOk } from './rule.ts';
import type { Scene } from './scene.ts';

/** A scene that is not the plugin's first. */
export function warm(exam: Exam, play: (scene: Scene) => Promise<void>): Promise<void> {
  return exam.scene(async scene => {
    await scene.warm();
    await play(scene);
  });
}

/** A pod that ADD has worked for; DEL follows. */
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
