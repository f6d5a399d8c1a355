// Events, ids and properties are the client's own vocabulary: who imports it needs no second import for them.
@_exported import HapaxModel
