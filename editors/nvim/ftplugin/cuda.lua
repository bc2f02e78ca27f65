require('orbit.server').start_first(vim.api.nvim_get_current_buf())
