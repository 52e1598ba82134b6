/** What the server tells of the catalogue and of the plan. Sizes are bytes, times seconds since the epoch. */

import type { IJobView } from '../views';

export interface IDataset {
  id: string;
  name: string;
  owner: string;
  type: string;
  description: string;
  mode: 'reference' | 'copy';
  place: string;
  path: string;
  files: number | null;
  size: number | null;
  created: number;
  /** Jobs that have not ended and use it. */
  jobs: number;
  /** Why it cannot be used now; "" when all is well. */
  trouble: string;
}

export interface IDatasets {
  datasets: IDataset[];
  types: string[];
}

export interface IModel {
  id: string;
  name: string;
  owner: string;
  kind: 'model' | 'template';
  description: string;
  framework: string;
  main: string;
  args: string[];
  hyperparameters: Record<string, unknown>;
  dataset: string;
  max_workers: number;
  origin: string;
  template: string;
  files: number;
  size: number;
  created: number;
  trainings: number;
}

export interface IModels {
  models: IModel[];
  frameworks: string[];
  hyperparameters: string[];
}

export interface IModelDetails {
  model: IModel;
  trainings: IJobView[];
  files: { name: string; size: number }[];
}

export interface IInstanceGroup {
  name: string;
  resource_group: string;
  parent: string;
  policy: string;
  preemption: boolean;
  share: number;
  own: number;
  lend: number | null;
  borrow: number | null;
  user_shares: Record<string, number> | null;
  throughput_aware: boolean;
  quantum: number;
  pending_timeout: number | null;
}

export interface IResourceGroup {
  name: string;
  hosts: string[];
  slots: string;
}
