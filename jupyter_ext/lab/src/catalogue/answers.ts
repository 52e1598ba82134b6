/** What the server answers about the catalogue and the plan. Sizes are bytes, times seconds since the epoch. */

import type * as schemas from '../schemas';

export type { IDataset, IDatasets, IModel, IModelDetails, IModels } from '../schemas';

/** An answer has every field; a request may leave out what has a default. */
export type IInstanceGroup = Required<schemas.IInstanceGroup>;
export type IResourceGroup = Required<schemas.IResourceGroup>;
